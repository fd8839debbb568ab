--- Needs per. Gives the slot of its limit in reply.
seen = seen + 1
if slot > lastSlot or reply[slot] ~= -per then
  slot = lastSlot
  while slot > 0 and reply[slot] ~= -per do slot = slot - 3 end
  for b = 3, slot == 0 and lastSlot or 0, 3 do
    foreign = foreign or A[b + base] + 0 == per -- a second section with the same Per
  end
end
if foreign or pos > tail and pos ~= len + 1 then foreign = true break end
