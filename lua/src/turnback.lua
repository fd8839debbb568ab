--- Needs a section and now. Gives date and fin; merges buckets that are too far ahead.
-- NoTimeTravel: if the clock stepped back, merge everything later than now + Per into one bucket
-- at now + Per.
local fin, date = pos, now
if last > now then
  if last > now + per and not refund then
    while closed > 0 do
      local b, c = read(pair, v, at)
      if last - (last - b) % wrap < now + per then break end
      open, closed, at = open + (u > 0 and c or 1), closed - 1, at + w + u
    end
    last, changed = now + per, true
  end
  date, dated, short = last, true, nil
  if slot > 0 or limits == 0 then
    ahead = ahead + 1
    if date < earliest then earliest = date end
  end
end
