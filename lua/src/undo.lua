--- Needs a section and since. Takes n units from it.
for _, s in ipairs(sections) do
  local last, total, open, closed, res = s.last, s.total, s.open, s.closed, s.res
  local step, body = s.w + s.u, v:sub(s.at or 1, s.fin - 1)
  if refund and s.slot > 0 and total > 0 and last >= since and since + s.per > s.date then
    -- Take the units from the first bucket that is not before since. If that is a closed bucket,
    -- it ends before p. If p reaches at, it is the open bucket.
    local p, t, units = s.fin, last, open
    while p > s.at do
      local b, c = read(s.pair, v, p - step)
      t = last - (last - b) % s.wrap
      if t >= since then
        units = s.u > 0 and c or 1
        break
      end
      p = p - step
    end
    local newer, older = v:sub(s.at, p - step - 1), v:sub(p, s.fin - 1)
    changed = true
    if units > n then
      total = total - n
      if p == s.at then open = open - n else body = newer .. write(s.pair, t % s.wrap, units - n) .. older end
    else
      total = total - units
      if p > s.at then
        body = newer .. older
      elseif closed > 0 then
        -- The newest closed bucket becomes the last one. Under Resolution 1, no event joins it.
        local b, c = read(s.pair, v, s.at)
        last, open, res, body = last - (last - b) % s.wrap, s.u > 0 and c or 1, 1, v:sub(s.at + step, s.fin - 1)
      else
        total = 0 -- that was the only bucket
      end
      closed = closed - 1
    end
  end
  if total > 0 and last + s.per > now then
    out, outs = out .. encode(newT, s.per, closed, last, res, total, open, body, s.w, s.u), outs + 1
    if last + s.per > expiry then expiry = last + s.per end
  end
end
