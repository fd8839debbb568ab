--- Needs reply and failure. Keeps the reply to event k, and prepares the next one.
if failure then reply[1] = failure end
local start = (k - 1) * (lastSlot + 2)
for b = 1, lastSlot + 2 do
  all[start + b] = reply[b]
  reply[b] = given[b]
end
