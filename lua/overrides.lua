-- overrides.lua stores the overrides of a limiter: other limits for some of its events, for a limited
-- time. Limiters read all overrides regularly, and decide by their copy. All overrides of a Name are in
-- one key.
--
-- KEYS[1]  the key of the overrides: Name:{overrides}:o
-- ARGV[1]  what to do:
--            set   give an event an override, which replaces any that it already has
--            end   remove the override of an event
--            list  reply with all overrides, and change nothing
-- ARGV[2]  now, in ms since 1970 (1 to 2^47 - 1), or empty to use the clock of this server
-- Set and end continue with ARGV[3], the tag of the event as it appears in its key (1 to 384 bytes).
-- Set continues with:
--   TTL      how many ms after now the override ends (1 ms to 366 days)
--   what     block: deny everything. unlimited: allow everything, and count nothing. Otherwise limits
--            that replace those of the event: the Per in ms (1 ms to 100 years) and the Max (1 to 2^53)
--            of each limit, all separated by spaces, as in 60000 100 1000 5. There are at most 31
--            limits, no two with the same Per
--   why      a text of 1 to 200 bytes
--   by       who set the override: at most 64 bytes; may be empty
-- List continues with ARGV[3], the version of the caller's copy, or 0.
--
-- Reply: a list that starts with three integers:
--   for set, 1; for end, 1 if the event had an override, otherwise 0; for list, the number of overrides
--   now
--   the version, which increases with each change: the time of the change in us (up to the year 2255), or
--   more; 0 if there is no override. If callers pass the time, a version can occur again once the last
--   override has been ended: these callers should list with version 0
-- Unless the caller already has this version, list continues with six items for each override, in the
-- order in which they were set: the tag, when it was set, when it ends (both in ms since 1970), what, why
-- and by.
--
-- An override is in force while now is before its end. Set and end drop overrides that have ended, and list
-- omits them. Copies must check the ends themselves: when an override expires, the version does not change.
-- A call whose reply was lost can be sent again: set then counts TTL from the later call.
--
-- Writes: one SET, or DEL if no override is left. The key expires with its last override. If callers pass
-- the time, the key lives one day longer, because their clock may be behind.
-- Errors, before anything is written: WRONGTYPE or SLIDEGATE, and a sentence that names the key. A Name has
-- at most 1000 overrides. If an argument is not a number, the error can be Lua's.
--
-- The record: byte 216, 7 bytes of version, and for each override 6 bytes each for when it was set and when
-- it ends, 2 bytes each for the lengths of tag, what, why and by, and these strings. Numbers are big endian.

local redis, A, key = redis, ARGV, KEYS[1]
local op, now, tag, grace, micros = A[1], A[2], A[3], 0
if now == '' then
  local t = redis.call('TIME')
  micros = t[1] * 1000000 + t[2]
  now = math.floor(micros / 1000)
else
  now, grace = now + 0, 86400000
  micros = math.min(now * 1000, 9007199254740000)
end

-- isIn reports whether n is an integer from 1 to most.
local function isIn(n, most) return n >= 1 and n <= most and n % 1 == 0 end

-- areLimits reports whether text is a valid list of limits.
local function areLimits(text)
  local words, seen, per = {}, {}, nil
  for word in text:gmatch('[^ ]+') do
    local n = #word <= 16 and word:match('^[1-9]%d*$') and word + 0
    if not n then return false end
    if per then
      if n > 9007199254740991 and word ~= '9007199254740992' then return false end
      per = nil
    else
      if n > 3155760000000 or seen[word] then return false end
      per, seen[word] = n, true
    end
    words[#words + 1] = word
  end
  return #words > 0 and #words <= 62 and not per and table.concat(words, ' ') == text
end

local valid = #KEYS == 1 and isIn(now, 140737488355327)
if op == 'set' then
  valid = valid and #A == 7 and #tag >= 1 and #tag <= 384 and isIn(A[4] + 0, 31622400000) and
    (A[5] == 'block' or A[5] == 'unlimited' or areLimits(A[5])) and #A[6] >= 1 and #A[6] <= 200 and #A[7] <= 64
elseif op == 'end' then
  valid = valid and #A == 3 and #tag >= 1 and #tag <= 384
else
  valid = valid and op == 'list' and #A == 3 and isIn(tag + 1, 9007199254740992)
end
if not valid then
  return redis.error_reply('SLIDEGATE key ' .. key .. ': invalid arguments (see the header of overrides.lua)')
end

local v, version, all = redis.pcall('GET', key), 0, {}
if type(v) == 'table' then
  if v.err:sub(1, 9) ~= 'WRONGTYPE' then return v end
  return redis.error_reply('WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter')
end
if v then
  local place, size = 9, #v
  local known = size > 28 and v:byte(1) == 216
  if known then version = struct.unpack('>I7', v, 2) end
  known = known and isIn(version, 9007199254740991)
  if known and op == 'list' and version == tag + 0 then place = size + 1 end
  while known and place <= size do
    known = place + 19 <= size
    if known then
      local since, till, t, what, why, by = struct.unpack('>I6I6I2I2I2I2', v, place)
      local from = place + 20
      place = from + t + what + why + by
      known = place <= size + 1 and t > 0 and what > 0 and since > 0
      if till > now then
        all[#all + 1] = {
          v:sub(from, from + t - 1), since, till, v:sub(from + t, from + t + what - 1),
          v:sub(from + t + what, place - by - 1), v:sub(place - by, place - 1),
        }
      end
    end
  end
  if not known then
    return redis.error_reply('SLIDEGATE key ' .. key ..
      ' holds no record that this version reads; remove it, or rename the limiter')
  end
end

if op == 'list' then
  local reply = {#all, now, version}
  for _, o in ipairs(all) do
    for i = 1, 6 do reply[#reply + 1] = o[i] end
  end
  return reply
end

local left, had = {}, 0
for _, o in ipairs(all) do
  if o[1] == tag then had = 1 else left[#left + 1] = o end
end
if op == 'set' then
  if #left >= 1000 then
    return redis.error_reply('SLIDEGATE key ' .. key .. ' holds 1000 overrides, and no more fit; end some of them')
  end
  had, left[#left + 1] = 1, {tag, now, now + A[4], A[5], A[6], A[7]}
elseif had == 0 then
  return {0, now, version}
end
version = math.max(micros, version + 1)
if #left == 0 then
  redis.call('DEL', key)
  return {had, now, 0}
end
local parts, last = {struct.pack('>BI7', 216, version)}, 0
for _, o in ipairs(left) do
  last = math.max(last, o[3])
  parts[#parts + 1] = struct.pack('>I6I6I2I2I2I2', o[2], o[3], #o[1], #o[4], #o[5], #o[6]) .. o[1] .. o[4] .. o[5] .. o[6]
end
redis.call('SET', key, table.concat(parts), 'PX', ('%.0f'):format(last - now + grace))
return {had, now, version}
