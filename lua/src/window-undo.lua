--- Gives back units of each of several events, or forgets them. Verbs: undo.
local read, write, A, keys = struct.unpack, struct.pack, ARGV, #KEYS
local units, times, places, now, grace = {}, {}, {}
do
  local valid, at, least = A[1] == 'undo', 2 * keys + 3, 0
  for k = 1, keys do -- n, and when the units were counted
    local n = A[2 * k + 1] + 0
    units[k], times[k], valid = n, A[2 * k + 2] + 0, valid and n >= 0 and n <= 9007199254740992 and n % 1 == 0
  end
  -- include clock
  -- include positions
end

local all = {}
for k = 1, keys do
  local key, n, since, place = KEYS[k], units[k], times[k], places[(k - 1) % #places + 1]
  local base, lastSlot, reply = place.base, place.lastSlot, place.reply
  for b = 3, lastSlot do reply[b] = place.given[b] end
  -- include record
  -- include takeback
  all[k] = failure or changed and 1 or 0
end
return all
