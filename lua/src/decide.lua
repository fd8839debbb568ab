--- Needs a section, its limit, n, unit, adds, counting and undecided. Gives wait and joins; changes
--- reply, adds and lasts. If units are missing, sets unread to -1 and leaves the loop.
-- Decide. need is how many units must be forgotten before this call fits or, if it is counted, before
-- the next call fits. joins is whether new units join the last bucket. b and c are the time and the
-- units of a bucket.
local need, wait, joins = total - (reply[slot + 1] - unit), 0
-- include fit for some counteach
if need > 0 then
  if adds and undecided < limits and not counting then -- the limits before this one have counted
    for b = 3, lastSlot, 3 do
      if reply[b] >= 0 then
        reply[b], reply[b + 1] = reply[b] - n, 0
        reply[b + 2] = reply[b] > 0 and (lasts and lasts[b] or T) + A[b + base] - now or 0
      end
    end
  end
  reply[1], adds = 0, counting
end
if adds then
  joins = last == date or res > 1 and last - last % res == date - date % res
  need = need + n
end
if need > total then
  wait = date + per - now
elseif need > 0 then
  -- Find the bucket with the last of these units. wait is first its time.
  local p = fin
  wait = adds and joins and date or last
  if u == 0 and need <= closed then wait = last - (last - read(pair, v, fin - need * w)) % wrap end
  while u > 0 and need > 0 and p > at do
    local b, c = read(pair, v, p - w - u)
    need, p = need - c, p - w - u
    if need <= 0 then wait = last - (last - b) % wrap end
  end
  wait = wait + per - now
  if wait < 1 then unread = -1 break end -- buckets are in order, so this one is not forgotten yet
end
if last ~= T and total > 0 then
  lasts = lasts or {}
  lasts[slot] = last
end
