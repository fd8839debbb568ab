--- Needs reply. Keeps it in all, and prepares the next one.
-- Several keys: keep this reply, and prepare the next one.
local width = lastSlot + 2
if refund then reply[1], width = changed and 1 or 0, 1 end
if failure then reply[1] = failure end
for b = 1, width do all[place + b] = reply[b] end
for b = 1, lastSlot + 2 do reply[b] = given[b] end
place = place + width
