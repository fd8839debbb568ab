--- Needs A, at, the index of G (see the contract), keys, units, valid, least and now. Gives places;
--- returns an error if the arguments are invalid.
-- Each event of a group has its own limits. places holds those of each position in a group. given is the
-- initial value of reply.
local size = (A[at] or 0) + 0
if not (size >= 1 and size % 1 == 0 and keys % size == 0) then size, valid = 1, false end
for k = 1, size do
  local limits, base, most, key, lastSlot, reply = (A[at + 1] or -1) + 0, at - 1, 1, KEYS[k]
  -- include most for joint
  at = at + 1 + 3 * limits
  if k == size and at ~= #A then limits = -1 end
  -- include checked
  -- include slots
  places[k] = {base = base, limits = limits, lastSlot = lastSlot, given = reply, reply = {}}
end
