--- Needs A and base, the number of events. Gives n, unit, units, writes, counting, singles, most
--- and valid.
-- The verb. One call counts unit units, and the waits are for one call. All calls together count n.
-- If there are several events, units lists the n of each event.
--   writes    units that fit are counted
--   counting  units that a limit denies are counted, too
--   singles   a call is n calls of one unit each
local op = A[1]
n = A[3] == '1' and 1 or A[3] + 0
valid, most, writes = n == 1 or n >= 1 and n <= 9007199254740992 and n % 1 == 0, n, true
if op ~= 'allow' then
  counting, singles, writes = op == 'count' or op == 'countsome', op == 'some' or op == 'countsome', op ~= 'peek'
  valid = valid and (counting or singles or not writes)
end
if base > 1 then
  -- include units
  valid = valid and most <= 9007199254740992
end
if singles then most = 1 end
unit = most
