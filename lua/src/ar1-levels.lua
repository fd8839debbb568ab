--- Needs the record, since and reply. Puts the levels of the limits into reply, and sets allowed to
--- false if one is too high; changes changed, out, outs and far.
-- The stored levels, decayed to now, minus what is given back. Levels of limits that the caller
-- does not have are kept, or listed in others.
local aged, slot, elapsed, sought = (T - now) / 1000, 0
if aged > 0 then aged, changed = 0, not since end
if since then
  elapsed = (T > now and T or now) - since
  elapsed = elapsed > 0 and elapsed / 1000 or 0
end
while true do
  -- include ar1-section
  x = x * exp(aged / per)
  slot = slot + 3
  if reply[slot] ~= per then
    slot, sought = 3, true
    while slot <= lastSlot and reply[slot] ~= per do slot = slot + 3 end
  end
  if slot > lastSlot then
    -- include ar1-carry
  else
    if sought and reply[slot + 2] then unread = -1 break end -- a second section with the same Per
    if since and x >= REST then
      local rest = n * exp(-elapsed / per)
      if rest >= REST then x, changed = x - rest, true end
    end
    if x < REST then x = 0 end
    if x > reply[slot + 1] then allowed = false end
    reply[slot + 2] = x
  end
  if unread == 0 or pos > len - 11 then break end
  per, x, pos = read('>I4d', v, pos)
end
if pos ~= len + 1 then unread = -1 end -- cut short, or more follows
