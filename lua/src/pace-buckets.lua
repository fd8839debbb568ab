--- Needs read and write. Gives bucket, widen and forget, and broken.
-- bucket returns the time and the units of the closed bucket at p.
local function bucket(s, p)
  local b, c = read(s.pair, s.v, p)
  return s.last - (s.last - b) % s.wrap, s.u > 0 and c or 1
end

-- widen makes the buckets of a section wide enough for their units.
local function widen(s)
  local total, closed, u = s.total, s.closed, s.u
  -- include width
  if fits > u then
    local body, w = closed > 0 and s.v:sub(s.at, s.fin - 1) or '', s.w
    -- include widen
    s.v, s.u, s.pair, s.at, s.fin = body, fits, '>I' .. w .. 'I' .. fits, 1, #body + 1
  end
end

local broken = false -- the units of a section do not add up

-- forget drops the buckets that cannot restrict any turn from date on.
local function forget(s, date)
  local per, last, closed, total, p, step = s.per, s.last, s.closed, s.total, s.fin, s.w + s.u
  if last + per <= date then
    s.total, s.open, s.closed, s.u, s.pair, s.at, s.fin = 0, 0, 0, 0, s.pair:sub(1, 3), 1, 1
    return
  end
  while closed > 0 do
    local b, c = read(s.pair, s.v, p - step)
    if last - (last - b) % s.wrap + per > date then break end
    total, closed, p = total - (s.u > 0 and c or 1), closed - 1, p - step
  end
  s.closed, s.total, s.fin, broken = closed, total, p, broken or total < s.open + closed
end
