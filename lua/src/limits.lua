--- Needs the verb. Gives limits, lastSlot, reply and given, and places if each event has its own limits.
-- The limits of the events or, if each event has its own limits, those of each position in a group. Until
-- a limit is decided, its slots in reply hold -Per, Max and Resolution.
--   size, places  if each event has its own limits: the number of events in a group, and the limits of
--                 each position. In a joint call, places also holds what may be written for the event
--   given         for several events: the initial value of reply
local limits, lastSlot, reply, given, places = (count - 2 - keys) / 3, 0
local size = keys
if own then
  base, places = stride * keys + 1, {}
  size = (A[base + 2] or 0) + 0
  if size < 1 or keys % size > 0 then size, valid = 1, false end
end
for k = 1, own and size or 1 do
  if own then
    limits, base, most = (A[base + 3 + lastSlot] or -1) + 0, base + 1 + lastSlot, 1
    for other = k, joint and keys or 0, size do
      if units[other] > most then most = units[other] end
    end
    if k == size and base + 2 + 3 * limits ~= count then limits = -1 end
  end
  if not (valid and limits % 1 == 0 and limits <= 31 and (limits >= 1 or (inspect or undo) and limits == 0)) then
    return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': invalid arguments (see the header of window.lua)')
  end
  lastSlot = 3 * limits
  if limits == 1 then
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
        'SLIDEGATE key %s: limit %d or the units are invalid (see the header of window.lua)', KEYS[k], slot / 3))
    end
    if per > longest then
      longest = per
    else
      for b = 3, slot - 3, 3 do
        if reply[b] == -per then
          return redis.error_reply(
            'SLIDEGATE key ' .. KEYS[k] .. ': two limits have the same Per; keep the tighter one')
        end
      end
    end
    reply[slot] = -per
    reply[slot + 1] = max
    reply[slot + 2] = width
  end
  given = units and {}
  for b = 1, units and lastSlot + 2 or 0 do given[b] = reply[b] end
  if own then places[k] = {base = base, limits = limits, lastSlot = lastSlot, reply = reply, given = given} end
end
