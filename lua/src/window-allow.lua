--- Decides on attempts, on each event by itself. Verbs: allow count peek some countsome.
-- The integers of the limit in slot 3, 6, ... of reply start at A[base + slot].
local read, write, A, base = struct.unpack, struct.pack, ARGV, #KEYS
local n, unit, units, writes, counting, singles -- the verb
local now, stamp, grace, limits, lastSlot, reply, given
do
  local least, count, valid, most, key = 1, #A
  -- include arguments
  -- include clock
  -- include limits
  stamp = now
  if units then
    given = {} -- the initial value of reply
    for b = 1, lastSlot + 2 do given[b] = reply[b] end
  end
end

local all = units and {} -- the replies to several events
for k = 1, base do
  local key, adds = KEYS[k], true
  if units then
    n = units[k]
    if not singles then unit = n end
  end
  if singles then reply[1] = n end
  -- include record
  -- include loop
  local out, outs, expiry, px, again = '', limits, 0
  local sections = T > now and {} or nil -- a denial may have to repair a timestamp
  while pos <= len or undecided > 0 or again do
    -- include again
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
      if adds and writes then
        -- include count
      end
      -- include row
    end
    -- include append
  end
  -- include foreign

  local repairs = not adds and sections and sections.changed
  if repairs then
    px = nil
    -- include rewrite
  end
  if writes and not failure and (adds or repairs) then
    -- include store
  end

  if ahead == limits then reply[2] = earliest end
  if not units then return failure and redis.error_reply(failure) or reply end
  -- include several
end
return all
