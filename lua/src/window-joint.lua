--- Decides on groups of events: all events of a group are counted, or none. Verbs: joint.
local read, write = struct.unpack, struct.pack

local A, keys = ARGV, #KEYS
local units, places, now, stamp, grace = {}, {}
do
  local valid, at, least = A[1] == 'joint', keys + 3, 1
  for k = 1, keys do
    local n = A[k + 2] == '1' and 1 or A[k + 2] + 0
    units[k], valid = n, valid and n >= 1 and n <= 9007199254740992 and n % 1 == 0
  end
  -- include clock
  -- include positions
  stamp = now
end

local all, counting = {}, false
for k = 1, keys do
  local key, n, unit, place, adds = KEYS[k], units[k], units[k], places[(k - 1) % #places + 1], true
  local base, limits, lastSlot, reply = place.base, place.limits, place.lastSlot, place.reply
  for b = 1, lastSlot + 2 do reply[b] = place.given[b] end
  -- include record
  -- include loop
  local out, outs, expiry, px = '', limits, 0
  local sections = T > now and {} or nil
  while pos <= len or undecided > 0 do
    -- include section
    -- include turnback
    local body
    if slot == 0 then
      -- include collect
      -- include carry
    else
      -- include forget
      -- include collect
      -- include decide
      if adds then
        -- include count
      end
      -- include row
    end
    -- include append
  end
  -- include foreign
  -- include propose
  -- include joint
end
return all
