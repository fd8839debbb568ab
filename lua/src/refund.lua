--- Needs a section s of the record, n and since. If s has a limit, takes up to n units from the
--- first bucket that is not before since; changes s and changed.
if s.slot > 0 and s.total > 0 and s.last >= since and since + s.per > s.date then
  -- Take the units from the first bucket that is not before since. If that is a closed bucket,
  -- it ends before p. If p reaches 1, it is the open bucket.
  local p, step, t, had = #s.body + 1, s.w + s.u, s.last, s.open
  while p > 1 do
    local b, c = read(s.pair, s.body, p - step)
    t = s.last - (s.last - b) % s.wrap
    if t >= since then
      had = s.u > 0 and c or 1
      break
    end
    p = p - step
  end
  local rest = had > n and had - n or 0
  changed, s.total = true, s.total - (had > n and n or had)
  if p > 1 then
    local kept = rest > 0 and write(s.pair, t % s.wrap, rest) or ''
    s.body = s.body:sub(1, p - step - 1) .. kept .. s.body:sub(p)
    if rest == 0 then s.closed = s.closed - 1 end
  elseif rest > 0 then
    s.open = rest
  elseif s.closed > 0 then
    -- The newest closed bucket becomes the last one. Under Resolution 1, no event joins it.
    local b, c = read(s.pair, s.body, 1)
    s.last, s.open, s.res, s.body = s.last - (s.last - b) % s.wrap, s.u > 0 and c or 1, 1, s.body:sub(step + 1)
    s.closed = s.closed - 1
  else
    s.total = 0 -- that was the only bucket
  end
end
