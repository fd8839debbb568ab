--- Needs sections, reply, n, base and now. Returns the reply.
-- The row of the last call equals reply. Go through the units of the record, oldest first, to find the
-- waits of the calls before it: at t + Per, gone units are forgotten.
local rows, waits = {reply[1], reply[2]}, {}
for _, s in ipairs(sections) do
  if s.slot > 0 then
    local gone, t, p, list = 0, 0, #s.body + 1, {}
    local joined = s.last == s.date or s.res > 1 and s.last - s.last % s.res == s.date - s.date % s.res
    for call = 1, n do
      local need = s.total + call + 1 - A[s.slot + base + 1]
      while s.total > 0 and gone < need and p > 1 do
        p = p - s.w - s.u
        local b, c = read(s.pair, s.body, p)
        gone, t = gone + (s.u > 0 and c or 1), s.last - (s.last - b) % s.wrap
      end
      if gone < need then t = (joined or need > s.total) and s.date or s.last end
      list[call] = need > 0 and math.max(t + s.per - now, 1) or 0
    end
    waits[s.slot] = list
  end
end
for call = 1, n do
  for i = 3, lastSlot, 3 do
    rows[#rows + 1] = reply[i] - n + call
    rows[#rows + 1] = call < n and waits[i][call] or reply[i + 1]
    rows[#rows + 1] = reply[i + 2]
  end
end
return rows
