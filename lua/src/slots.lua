--- Needs A, base, key, limits, most, the units that each Max must allow, and now. Gives lastSlot
--- and reply; returns an error if a limit is invalid.
-- The limits. Until a limit is decided, its slots in reply hold -Per, Max and Resolution.
lastSlot = 3 * limits
if limits == 1 then -- tables of the right size
  reply = {1, now, nil, nil, nil}
else
  reply = {1, now, nil, nil, nil, nil, nil, nil, nil, nil, nil}
end
local longest = 0
for slot = 3, lastSlot, 3 do
  local i = slot + base
  local per, max, width = A[i] + 0, A[i + 1] + 0, A[i + 2]
  width = width == '1' and 1 or width + 0
  if not (width <= per and per <= 17592186044416 and most <= max and max <= 9007199254740992 and
    per % 1 + max % 1 == 0 and (width == 1 or width >= 1 and width % 1 == 0)) then
    return redis.error_reply(string.format(
      'SLIDEGATE key %s: limit %d or the units are invalid (see the header of window.lua)', key, slot / 3))
  end
  if per > longest then
    longest = per
  else
    for b = 3, slot - 3, 3 do
      if reply[b] == -per then
        return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
      end
    end
  end
  reply[slot] = -per
  reply[slot + 1] = max
  reply[slot + 2] = width
end
