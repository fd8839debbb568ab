--- Needs v and pos. Gives a section of the record; changes pos.
-- Read the section.
if pos > 8 then flags, closed, per, at = read('>BBI4', v, pos) end
if flags >= 32 and pos + 8 <= len then -- a wide head
  flags, closed, per, at = read('>BI2I6', v, pos)
  flags = flags - 32
end
if per < 65536 then
  w, pair, wrap = 2, '>I2', 65536
  if per == 0 then foreign = true end
elseif per < 16777216 then
  w, pair, wrap = 3, '>I3', 16777216
elseif per < 4294967296 then
  w, pair, wrap = 4, '>I4', 4294967296
else
  w, pair, wrap, short = 6, '>I6', 281474976710656, nil
  if per > 17592186044416 then foreign = true end
end
last = T
total = closed + 1
open = 1
if flags == 0 then
  pos = at + closed * w
else
  u = flags % 4
  local r = (flags - u) / 4 % 4
  short = short and r < 2 and flags % 16
  if flags > 31 or r == 3 then foreign = true end
  if u > 1 then u = u * 4 - 5 end
  pos = at + u + u + closed * (w + u) + (r == 2 and 6 or 0)
  if flags >= 16 then pos = pos + 6 end
  if pos <= len + 1 then
    if flags >= 16 then
      last, at = read('>I6', v, at)
      if last > T + per then foreign = true end
    end
    if r == 1 then res = (per + 59 - (per + 59) % 60) / 60 elseif r == 2 then res, at = read('>I6', v, at) end
    if u == 1 then
      total, open, at = read('>BB', v, at)
      pair = w == 4 and '>I4B' or w == 3 and '>I3B' or w == 2 and '>I2B' or '>I6B'
    elseif u > 1 then
      total, open, at = read(u == 3 and '>I3I3' or '>I7I7', v, at)
      pair = pair .. (u == 3 and 'I3' or 'I7')
      if total > 9007199254740992 then foreign = true end
    end
  end
end
