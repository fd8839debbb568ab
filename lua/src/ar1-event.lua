--- Needs units, k and reply. Changes n, unit and the highest levels in reply to those of event k.
n = units[k]
unit = n
for slot = 3, lastSlot, 3 do
  local limit = reply[slot + 1]
  reply[slot + 1] = (limit[1] - unit + limit[2]) * limit[3]
end
