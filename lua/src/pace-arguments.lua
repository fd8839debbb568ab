--- Needs A. Gives op, n and the last arguments of the verb; count, least, most and valid.
-- The verb, and its last arguments:
--   turns, horizon  book: how many turns of n units, and how far after now they may be
--   turn, oldShift  cancel: the turn as in the reply to book, and the shift in that reply
--   length          pause: D
-- count is where the arguments of the limits end, least the minimum number of limits, and most the
-- minimum for each Max.
local op, n, count, least, most = A[1], A[3] == '1' and 1 or A[3] + 0, #A, 0, 1
local valid, turns, horizon, turn, oldShift, length = n >= 1 and n <= 9007199254740992 and n % 1 == 0 and #KEYS == 1
if op == 'book' then
  turns, horizon, n, count = n, A[count - 1] + 0, A[count] == '1' and 1 or A[count] + 0, count - 2
  least, most, valid = 1, n, valid and turns <= 4096 and n >= 1 and n <= 9007199254740992 and n % 1 == 0 and
    horizon >= 0 and horizon <= 17592186044416 and horizon % 1 == 0
elseif op == 'cancel' then
  turn, oldShift, count, least = A[count - 1] + 0, A[count] + 0, count - 2, 1
  valid = valid and turn >= 0 and turn <= 281474976710655 and turn % 1 == 0 and
    oldShift >= 0 and oldShift <= 281474976710655 and oldShift % 1 == 0
elseif op == 'pause' then
  length, count = A[count] + 0, count - 1
  valid = valid and length >= 0 and length <= 17592186044416 and length % 1 == 0
elseif op == 'inspect' then
  most = n
else
  valid = valid and (op == 'due' or op == 'reset')
end
