--- Gives back units of an event, or forgets it. Verbs: refund reset.
local read, write, A, base, n, since = struct.unpack, struct.pack, ARGV, 1, ARGV[3] + 0, 0
local now, grace, lastSlot, reply
do
  local least, most, count, valid, limits, key = 1, 1, #A, #KEYS == 1 and n >= 1 and n <= 9007199254740992 and n % 1 == 0
  if A[1] == 'refund' then
    since, count = A[count] + 0, count - 1
  else
    n, valid = 0, valid and A[1] == 'reset'
  end
  -- include clock
  -- include limits
end

local key = KEYS[1]
-- include record
-- include takeback
if failure then return redis.error_reply(failure) end
return {changed and 1 or 0}
