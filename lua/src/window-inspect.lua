--- Replies with the state of an event. Verbs: inspect.
local read = struct.unpack

local A, base, n, unit, adds, counting = ARGV, #KEYS, ARGV[3] + 0, ARGV[3] + 0, false, false
local now, limits, lastSlot, reply
do
  local least, most, count, valid, key = 0, n, #A,
    A[1] == 'inspect' and base == 1 and n >= 1 and n <= 9007199254740992 and n % 1 == 0
  -- include clock
  -- include limits
end

local key = KEYS[1]
-- include record
-- include loop
local sections = {}
while pos <= len or undecided > 0 do
  -- include section
  -- include turnback
  -- include forget
  -- include collect
  if slot > 0 then
    -- include decide
    -- include row
  end
end
-- include foreign
if failure then return redis.error_reply(failure) end
-- include buckets
