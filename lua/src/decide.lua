--- Needs a section, its limit and n. Gives wait, need and joins; changes allowed, adds and counts.
-- Decide. need is how many units must be forgotten before this call fits or, if it is counted,
-- before the next call fits.
local due, need, wait = date + per, total - (reply[slot + 1] - unit), 0
if singles and need + fit > 1 then
  fit = need < 1 and 1 - need or 0
  if lowers and fit > 0 then again, n = again or undecided < limits, fit end
end
if need > 0 then
  if allowed and undecided < limits and not counting then
    for b = 3, lastSlot, 3 do
      if reply[b] >= 0 then
        reply[b], reply[b + 1] = reply[b] - n, 0
        reply[b + 2] = reply[b] > 0 and (lasts and lasts[b] or T) + A[b + base] - now or 0
      end
    end
  end
  allowed, adds, counts = false, counting, counting
end
if adds then
  joins = last == date or res > 1 and last - last % res == date - date % res
  need = need + n
end
if need > total then
  wait = due - now
elseif need > 0 then
  local t, p = adds and joins and date or last, fin
  if u == 0 and need <= closed then t = last - (last - read(pair, v, fin - need * w)) % wrap end
  while u > 0 and need > 0 and p > at do
    local b, c = read(pair, v, p - w - u)
    need, p = need - c, p - w - u
    if need <= 0 then t = last - (last - b) % wrap end
  end
  wait = t + per - now
  if wait < 1 then foreign = true break end -- buckets are in order, so this one is not forgotten yet
end
if last ~= T and total > 0 then
  lasts = lasts or {}
  lasts[slot] = last
end
