--- Needs A, base, the verb, valid, most and now. Gives lastSlot and reply; for several events,
--- gives given.
-- The limits. Each has three slots in reply, starting at 3, 6, 9 and so on. Until the end, they
-- hold its Per, the highest level at which it allows a call, and its current level. The highest
-- level is C - unit plus a margin for the decay within 1 us, which is the resolution of the clock,
-- and for the rounding errors of doubles. The margin is at most 1/5 in total, so that no burst and
-- no interval holds more than it may. C - Max is computed separately, with a series where the
-- formula would lose digits. If there are several events, the slot of the highest level holds what
-- it is computed from for each event: Max, C - Max, and 1 plus the margin.
local limits = (#A - base - (since and 3 or 2)) / 2
if not (valid and limits % 1 == 0 and limits <= 31 and (limits >= 1 or levels and limits == 0)) then
  return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': invalid arguments (see the header of ar1.lua)')
end
lastSlot = 3 * limits
if limits == 1 then
  reply = {0, now, nil, nil, nil}
else
  reply = {0, now, nil, nil, nil, nil, nil, nil, nil, nil, nil}
end
local longest, a = 0, base + 1 -- a is the index in A
for slot = 3, lastSlot, 3 do
  a = a + 2
  local per, max, above = A[a] + 0, A[a + 1] + 0
  if not (per >= 1 and per <= 17592186044416 and most <= max and max <= 1e7 and per % 1 + max % 1 == 0) then
    return redis.error_reply(string.format(
      'SLIDEGATE key %s: limit %d or the units are invalid (see the header of ar1.lua)', KEYS[1], slot / 3))
  end
  if per > longest then
    longest = per
  else
    for b = 3, slot - 3, 3 do
      if reply[b] == per then
        return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': two limits have the same Per; keep the tighter one')
      end
    end
  end
  local y = 1 / max
  local z = y * y
  if max < 20 then above = 1 / (1 - exp(-y)) - max else above = 0.5 + y * (1 / 12 - z * (1 / 720 - z / 30240)) end
  -- include ar1-margin
  reply[slot] = per
  reply[slot + 1] = units and {max, above, 1 + more} or (max - unit + above) * (1 + more)
end
if units then
  given = {} -- the initial value of reply
  for b = 1, lastSlot + 2 do given[b] = reply[b] end
end
