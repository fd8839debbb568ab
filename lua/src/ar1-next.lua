--- Needs before. Adds the unit of the next call to the levels there, and copies before to reply.
for slot = 3, lastSlot, 3 do
  local most, x = before[slot + 1], before[slot + 2]
  x = x <= most and x + 1 or x < most + 1 and most + 1 or x
  before[slot + 2] = x
  reply[slot], reply[slot + 1], reply[slot + 2] = before[slot], most, x
end
