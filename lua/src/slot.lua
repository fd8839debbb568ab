--- Needs a section. Sets slot to that of its limit, or 0 if the caller has none; counts down
--- unread. If the record ends here although it may not, or the Per occurs twice, sets unread to -1
--- and leaves the loop.
unread = unread - 1
if slot > lastSlot or reply[slot] ~= -per then
  slot = lastSlot
  while slot > 0 and reply[slot] ~= -per do slot = slot - 3 end
  for b = 3, slot == 0 and lastSlot or 0, 3 do
    if A[b + base] + 0 == per then unread = -1 end -- a second section with the same Per
  end
end
if unread < 0 or pos > len - 5 and pos ~= len + 1 then unread = -1 break end
