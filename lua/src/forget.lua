--- Needs a section and date. Forgets its old buckets.
-- Forget.
if slot > 0 and not refund or inspect then
  if last + per <= date then
    local width = reply[slot + 2]
    last = date; res = width
    total = 0; closed = 0; open = 0; u = 0
    short = per < 4294967296 and (width == 1 and 0 or width == (per + 59 - (per + 59) % 60) / 60 and 4)
  else
    while closed > 0 do
      local b, c = read(pair, v, fin - w - u)
      if last - (last - b) % wrap + per > date then break end
      total, closed, fin = total - (u > 0 and c or 1), closed - 1, fin - w - u
    end
    if total < open then foreign = true break end -- all buckets together hold at least as much as one
  end
end
