--- Decides on n attempts of one unit, and replies to each of them. Verbs: counteach.
local read, write = struct.unpack, struct.pack
local A, base, n, unit, counting, singles = ARGV, 1, ARGV[3] + 0, 1, true, true
local now, stamp, grace, limits, lastSlot, reply
do
  local least, most, count, valid, key = 1, 1, #A, A[1] == 'counteach' and #KEYS == 1 and n >= 1 and n <= 4096 and n % 1 == 0
  -- include clock
  -- include limits
  stamp = now
end

local key, adds = KEYS[1], true
reply[1] = n
-- include record
-- include loop
local out, outs, expiry, px = '', limits, 0
local sections = {}
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
    -- include count
    -- include row
  end
  -- include append
end
-- include foreign
if not failure then
  -- include store
end
if failure then return redis.error_reply(failure) end
if ahead == limits then reply[2] = earliest end
-- include rows
