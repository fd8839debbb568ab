--- Needs A and base, the number of events. Gives op, n, unit, units, looks, counting, singles,
--- rows, levels, others, since, most and valid.
-- The verb. One call counts unit units, and the waits are for one call. All calls together count n.
-- If there are several events, units lists the n of each event.
--   looks     nothing is written: peek and inspect
--   counting  units that a limit denies are counted, too
--   singles   one call is n calls of one unit each, and reply[1] is how many of them are allowed
--   rows      for each and counteach: the reply to each call
--   levels    for inspect: the levels of the limits
--   others    for inspect: the sections that belong to none of them
--   since     for refund: when the units were counted
op = A[1]
n = A[3] == '1' and 1 or A[3] + 0
valid = n == 1 or n >= 1 and n <= 1e7 and n % 1 == 0
unit = n
if op ~= 'allow' then
  counting = op == 'count' or op == 'countsome' or op == 'counteach'
  singles = op == 'some' or op == 'each' or counting and op ~= 'count'
  if op == 'each' or op == 'counteach' then rows, valid = {0, 0}, valid and n <= 4096 end
  if op == 'inspect' then levels, others = {}, {} end
  if op == 'refund' then since = A[#A] + 0 end
  looks = levels or op == 'peek'
  if singles or since or op == 'reset' then unit = 1 end
  valid = valid and (counting or singles or looks or since or op == 'reset')
end
most = unit
if base > 1 then
  -- include units
  valid = valid and (op == 'allow' or op == 'count')
end
