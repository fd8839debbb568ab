--- Needs a section s with a limit, n and the turn t. Counts the units at t, and forgets what cannot delay a later turn.
local per, last = s.per, s.last
if s.total > 0 then forget(s, t) end
local total, width = s.total, s.coarse and (per + 239 - (per + 239) % 240) / 240
if total > 0 and (last == t or width and last - (last - shift) % width == t - (t - shift) % width) then
  s.open = s.open + n
else
  if total > 0 then
    local body = write(s.pair, last % s.wrap, s.open) -- without units if every bucket holds 1
    if s.closed > 0 then body = body .. s.v:sub(s.at, s.fin - 1) end
    s.v, s.at, s.fin, s.closed = body, 1, #body + 1, s.closed + 1
  end
  s.open, s.coarse = n, s.max > 256
end
s.last, s.total = t, total + n
if total + n ~= s.closed + 1 then widen(s) end
