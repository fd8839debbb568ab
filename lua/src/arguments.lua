--- Needs KEYS and ARGV. Gives the verb: op, n, unit, most, units and the flags.
local redis, read, write, A, keys = redis, struct.unpack, struct.pack, ARGV, #KEYS
local base = keys -- the integers of a limit with a slot in reply start at A[base + slot]
local op, now, n, count = A[1], A[2], A[3] == '1' and 1 or A[3] + 0, #A

-- The verb. One call counts unit units, and the waits are for one call. All calls together count n.
-- If there are several events, units lists the n of each event.
local valid, unit, most, units = n == 1 or n >= 1 and n <= 9007199254740992 and n % 1 == 0, n
local tries, writes = true, true -- tries: reply includes the units, unless a limit denies
local counting, looks, inspect, refund -- counting: denied units count too; looks: peek or inspect
local singles, lowers, fit -- singles: one call is n calls, of which fit are allowed; lowers: only these count
local lists, since, simulated -- lists: collect the sections, because the loop alone is not enough
local joint, undo, own -- joint: all events are counted, or none; own: each event has its own limits
local stride = 1 -- how many arguments each n takes
if op ~= 'allow' then
  joint, undo = op == 'joint', op == 'undo'
  own = joint or undo
  if op == 'some' or op == 'each' then
    singles, lowers = true, true
  else
    counting = op == 'count' or op == 'countsome' or op == 'counteach'
    singles = counting and op ~= 'count'
    inspect, refund = op == 'inspect', op == 'refund' or op == 'reset' or undo
    looks = inspect or op == 'peek'
    valid = (valid or undo and n == 0) and (counting or looks or refund or joint)
    if refund then unit = 1 end
    if op == 'refund' then since, count = A[count] + 0, count - 1 end
    if undo then stride = 2 end
    if looks or refund then writes = false end
    if inspect or refund then tries = false end
    lists = inspect or refund or op == 'counteach'
  end
  if singles then
    unit, fit = 1, n
    valid = valid and (op == 'some' or n <= 4096 or op == 'countsome')
  end
end
most = unit
if keys > 1 or own then
  units, valid = {n}, valid and (op == 'allow' or op == 'count' or own)
  for k = 2, keys do
    n = A[stride * (k - 1) + 3]
    n = n == '1' and 1 or n + 0
    if n > most then most = n end
    units[k], valid = n, valid and (n >= 1 or undo and n == 0) and n % 1 == 0
  end
  valid = valid and most <= 9007199254740992
  for k = 1, undo and keys or 0 do since = A[2 * k + 2] + 0 end -- fail before anything is written
end
