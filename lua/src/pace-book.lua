--- Needs sections, turns, n, horizon and date. Books the turns: changes sections, floor, reply and
--- changed.
-- A turn is the earliest time t at which every limit allows n units, and that is not before now, the
-- newest turn or the end of the pause. Once its units are counted, the search goes on from t.
local booked, t = 0, date < pauseEnd and pauseEnd or date
reply[5] = 0
while booked < turns do
  for i = 1, taken do
    local s = sections[i]
    -- include pace-earliest
    if earliest > t then t = earliest end
  end

  if t > now + horizon then
    reply[5] = t - horizon - now
    break
  end

  for i = 1, taken do
    local s = sections[i]
    if s.max then
      -- include pace-count
    end
  end
  floor, booked = t, booked + 1
  reply[5 + booked] = t
end
reply[1], changed = booked, changed or booked > 0
