--- Needs n, the verb and the levels in reply. Counts single units there. If needed, gives before:
--- reply before that, of which the limits are only for rows. Gives rounds; changes reply[1], changed
--- and adds.
-- climb adds up to count single units to the level x, as long as x is at most most. It returns the
-- new level and how many units it added. It rounds like the same number of single additions: up to
-- the next power of 2 these are exact, so climb makes them in one step.
local function climb(x, most, count)
  local added, power = 0, 1
  while added < count and x <= most do
    while power <= x do power = power + power end
    local step, room = power - x, most - x
    if room < step then step = room - room % 1 + 1 elseif step % 1 > 0 then step = step - step % 1 + 1 end
    if step > count - added then step = count - added end
    x = x + step
    added = added + step
  end
  return x, added
end
-- Add the units that each limit allows. If denied units do not count, keep only the units that all
-- limits allow.
local fit, again = n
before = (rows or lastSlot > 3) and {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
for slot = 3, lastSlot, 3 do
  local most, x, added = reply[slot + 1], reply[slot + 2] or 0
  if before then before[slot + 2] = x end
  x, added = climb(x, most, counting and n or fit)
  if counting and added < n and x < most + 1 then x = most + 1 end
  if added < fit then fit, again = added, not counting and slot > 3 end
  reply[slot + 2] = x
end
if again then
  for slot = 3, lastSlot, 3 do reply[slot + 2] = climb(before[slot + 2], reply[slot + 1], fit) end
end
reply[1], changed, adds = fit, true, false
if rows then
  rounds = counting and n or fit
  for slot = 3, lastSlot, 3 do before[slot], before[slot + 1] = reply[slot], reply[slot + 1] end
end
