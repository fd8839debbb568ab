--- Needs sections and reply. Returns a row for each of the calls.

reply[1] = fit
if op == 'some' or op == 'countsome' then return reply end

-- The rows. The row of the last call that counted equals reply, and so does the row of a denial after
-- it. For the verb each, the calls before the last one fill no limit, so their rows have no wait.
local rows, waits, place = {fit, reply[2]}, {}, 3
for _, s in ipairs(counting and sections or {}) do
  if s.slot > 0 then
    -- Go through the units of the record, oldest first: at t + Per, gone units are forgotten.
    local gone, t, p, list = 0, 0, s.fin, {}
    local joined = s.last == s.date or s.res > 1 and s.last - s.last % s.res == s.date - s.date % s.res
    for k = 1, n do
      local need = s.total + k + 1 - A[s.slot + base + 1]
      while s.total > 0 and gone < need and p > s.at do
        p = p - s.w - s.u
        local b, c = read(s.pair, v, p)
        gone, t = gone + (s.u > 0 and c or 1), s.last - (s.last - b) % s.wrap
      end
      if gone < need then t = (joined or need > s.total) and s.date or s.last end
      list[k] = need > 0 and math.max(t + s.per - now, 1) or 0
    end
    waits[s.slot] = list
  end
end
local counted = lowers and fit or n
for k = 1, lowers and math.min(A[3] + 0, fit + 1) or n do
  for slot = 3, lastSlot, 3 do
    rows[place] = k < counted and reply[slot] - counted + k or reply[slot]
    rows[place + 1] = k < counted and (waits[slot] and waits[slot][k] or 0) or reply[slot + 1]
    rows[place + 2] = reply[slot + 2]
    place = place + 3
  end
end
return rows
