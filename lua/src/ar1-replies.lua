--- Needs the levels in reply, and before and rounds. Replaces the levels by the reply, or appends
--- to rows; changes out, outs and far.
-- Each round of the loop builds a reply. The last round also builds the sections of the record.
-- Each and counteach take one round for each row, and rounds is how many are left. Where it is not
-- set, there is a single round.
repeat
  if rounds then
    rounds = rounds > 1 and rounds - 1
    -- include ar1-next
  end
  for slot = lastSlot, 3, -3 do
    -- include ar1-row
  end
  if rows then
    for i = 3, lastSlot + 2 do rows[#rows + 1] = reply[i] end
  end
until not rounds
