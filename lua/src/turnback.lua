--- Needs a section and now. Declares date, the time of the attempt in this section: now, or last if
--- that is later. If last is more than Per later, changes the section and sets sections.changed;
--- counts ahead.
-- NoTimeTravel: if the clock stepped back, merge everything later than now + Per into one bucket
-- at now + Per.
local date = now
if last > now then
  if last > now + per then
    while closed > 0 do
      local b, c = read(pair, v, at)
      if last - (last - b) % wrap < now + per then break end
      open, closed, at = open + (u > 0 and c or 1), closed - 1, at + w + u
    end
    last, sections.changed = now + per, true
  end
  date = last
  if slot > 0 or limits == 0 then
    ahead = ahead + 1
    if date < earliest then earliest = date end
  end
end
