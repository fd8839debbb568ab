--- Needs the sections, now before clock, floor and pauseEnd. Moves times that are too far in the
--- future; changes the sections, floor, pauseEnd, stepped, broken and changed.
-- From now on, a turn can get a time that was given to another turn before. No turn that was booked
-- before, even if a pause has moved its time, is later than stepped.
local newest = math.max(floor, pauseEnd)
if newest >= now and newest > stepped then stepped = newest end

-- The clock stepped back. No turn stays further in the future than it was at the last write.
local latest = now + math.max(floor - clock, 0)
for _, s in ipairs(sections) do
  if s.last > latest then
    while s.closed > 0 do
      local t, units = bucket(s, s.at)
      if t < latest then break end
      s.open, s.closed, s.at = s.open + units, s.closed - 1, s.at + s.w + s.u
    end
    s.last = latest -- less than Per after the closed buckets, so their times stay as they are
    broken = broken or s.total < s.open + s.closed
    if s.total > 0 then widen(s) end
  end
end
if floor > latest then floor, changed = latest, true end
latest = now + math.max(pauseEnd - clock, 0)
if pauseEnd > latest then pauseEnd, changed = latest, true end
