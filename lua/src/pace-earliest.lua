--- Needs a section s and n. Gives earliest, when its limit allows n more units: 0 if it always does.
-- need is how many of the oldest units have to be forgotten first. A bucket is forgotten Per after its
-- time. If the closed buckets hold fewer than need, that includes the last bucket. Otherwise go through
-- them, oldest first, until they make up need.
local max, total, earliest = s.max, s.total, 0
local need = max and total - (max - n) or 0
if need > total - s.open then
  earliest = s.last + s.per
elseif need > 0 then
  local p, units = s.fin
  if s.u == 0 then p, need = p - (need - 1) * s.w, 1 end -- every bucket holds 1
  while need > 0 and p > s.at do
    p = p - s.w - s.u
    earliest, units = bucket(s, p)
    need = need - units
  end
  earliest = earliest + s.per
end
