--- Needs sections, stepped, n, turn and oldShift. Gives back the units of the turn: changes sections, reply
--- and changed.
-- t is when the turn is due. A turn that came before the last pause, that was booked under a larger
-- shift, or that may have been booked before the clock stepped back, gives nothing back.
local t = turn + shift - oldShift
for _, s in ipairs(sections) do
  forget(s, date)
  if s.max and s.total > 0 and t <= s.last and t + s.per > date and t >= pauseEnd and t > stepped and oldShift <= shift then
    -- The units are in the first bucket that is not before t.
    local p, step, at, units = s.fin, s.w + s.u, s.last, s.open
    local width = s.max > 256 and math.ceil(s.per / 240) or 1
    while p > s.at do
      local b, c = bucket(s, p - step)
      if b >= t then at, units = b, c break end
      p = p - step
    end
    if at - t < width then
      local closed, rest = p > s.at, units > n and units - n or 0
      changed, reply[1], s.total = true, 1, s.total - units + rest
      if closed then
        local kept = rest > 0 and write(s.pair, at % s.wrap, rest) or ''
        s.v = s.v:sub(s.at, p - step - 1) .. kept .. s.v:sub(p, s.fin - 1)
        s.at, s.fin, s.closed = 1, #s.v + 1, rest > 0 and s.closed or s.closed - 1
      elseif rest > 0 then
        s.open = rest
      elseif s.closed > 0 then
        -- The newest closed bucket becomes the last one. No turn at another time joins it.
        local last, open = bucket(s, s.at)
        s.last, s.open, s.coarse, s.closed, s.at = last, open, false, s.closed - 1, s.at + step
      else
        s.open = 0
      end
    end
  end
end
