--- Needs a section and date. Forgets its buckets that are Per old. If units are missing, sets
--- unread to -1 and leaves the loop.
if last + per <= date then
  local width = reply[slot + 2]
  last = date; res = width
  total = 0; closed = 0; open = 0; u = 0
  flags = width == 1 and 0 or width == (per + 59 - (per + 59) % 60) / 60 and 4 or 8
else
  while closed > 0 do
    local b, c = read(pair, v, fin - w - u)
    if last - (last - b) % wrap + per > date then break end
    total, closed, fin = total - (u > 0 and c or 1), closed - 1, fin - w - u
  end
  if total < open then unread = -1 break end -- all buckets together hold at least as much as one
end
