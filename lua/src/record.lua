--- Needs key. Gives the record v and its head, and the locals of the loop over its sections.
-- The record.
local v = redis.pcall('GET', key)
local len, first, T, foreign, failure, flags, closed, per, at = 0, 128, 0
if v then
  len = #v -- 0 if v is an error
  if len > 12 then
    first, T, flags, closed, per, at = read('>BI6BBI4', v) -- with the head of the first section
    if first < 129 or first > 159 then foreign = true end
  elseif v.err then
    failure, foreign = v.err, true
    if failure:sub(1, 9) == 'WRONGTYPE' then
      failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
    end
  else
    first, foreign = v:byte() or 0, true
  end
end
local newT, tail = refund and T or now, len - 5 -- tail: where the last head may start
local pos, slot, undecided, seen, ahead, earliest = 8, 0, limits, 0, 0, 281474976710656
local out, outs, expiry, px, again, changed, lasts = '', limits, 0
local last, total, open, w, pair, wrap, joins
local dated = simulated -- PX is not the Per of a limit
if refund then undecided = 0 end
if T > now then sections = sections or {} end -- a denial may have to repair a timestamp
if foreign then
  pos, undecided = len + 1, 0
elseif op == 'reset' or undo and n == 0 then -- as if no section were left
  pos, first, changed = len + 1, 128, v and true
end
