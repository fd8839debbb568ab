--- Needs v, len, T, pos, u = 0, res, and the head of a section in flags, closed, per and at. Gives
--- the section; moves pos to its end, and takes the bits 16 and 32 from flags. If it is no section,
--- sets unread to -1.
if flags > 31 and pos + 8 <= len then -- a wide head
  flags, closed, per, at = read('>BI2I6', v, pos)
  flags = flags - 32
end
if per < 65536 then
  w, pair, wrap = 2, '>I2', 65536
  if per == 0 then unread = -1 end
elseif per < 16777216 then
  w, pair, wrap = 3, '>I3', 16777216
elseif per < 4294967296 then
  w, pair, wrap = 4, '>I4', 4294967296
else
  w, pair, wrap = 6, '>I6', 281474976710656
  if per > 17592186044416 then unread = -1 end
end
last = T
total = closed + 1
open = 1
if flags == 0 then
  pos = at + closed * w
else
  u = flags % 4
  if u > 1 then u = u * 4 - 5 end
  pos = at + u + u + closed * (w + u) + (flags % 16 > 7 and 6 or 0)
  if flags > 15 then pos = pos + 6 end
  if pos > len + 1 or flags > 31 or flags % 16 > 11 then
    unread = -1
  else
    if flags > 15 then
      last, at = read('>I6', v, at)
      flags = flags - 16
      if last > T + per then unread = -1 end
    end
    if flags > 7 then res, at = read('>I6', v, at) end
    if u == 1 then
      total, open, at = read('>BB', v, at)
      pair = w == 4 and '>I4B' or w == 3 and '>I3B' or w == 2 and '>I2B' or '>I6B'
    elseif u > 1 then
      total, open, at = read(u == 3 and '>I3I3' or '>I7I7', v, at)
      pair = pair .. (u == 3 and 'I3' or 'I7')
      if total > 9007199254740992 then unread = -1 end
    end
  end
end
