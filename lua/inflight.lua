-- inflight.lua bounds how many units of an event are held at once. A lease holds n units, and expires
-- unless it is renewed. The whole state of an event is in one key.
--
-- KEYS[1]  the key of the event: Name:{tag}:l. The tag is made as for window.lua
-- ARGV[1]  what to do:
--            acquire  hold n units if no more than Max units are then held in total. If the lease is
--                     already held, extend it, and reply with the same token
--            renew    extend one or more leases. A lease that this record never had is added again if
--                     it fits. A lease that was released or has ended is not added again
--            release  end one or more leases
--            inspect  reply with the leases, and change nothing
--            reset    forget the event. Leases that are still held are added again when they are renewed
-- ARGV[2]  now, in us since 1970 (1 to 9 x 10^15), or empty to use the clock of this server
-- Acquire and renew continue with ARGV[3], the TTL: how many ms after now the lease ends (1 to 2^32).
-- Then come, for each lease:
--   id       8 bytes that the client chose at random, unique to the lease
--   n        units, 1 to 1000; the same in all calls for a lease
--   Max      for acquire and renew: n to 1000
--   token    for renew: the token in the reply to acquire
-- Acquire takes one lease; renew and release take leases of at most 1000 units in total.
-- The last ARGV of acquire and renew can be a string of at most 32 bytes that names the holder of the leases.
--
-- Reply: a list of integers. Times are in us since 1970. All replies start with these three integers:
--   for acquire, 1 if the lease is held, otherwise 0; for renew, how many of the leases are held; for
--   release, how many of the leases were held; for inspect, how many leases there are; for reset, 1 if
--   there was a record, otherwise 0
--   now
--   how many units are held after the call
-- Then come:
--   acquire  the token, or 0 if denied; and the wait in ms until n units fit, or 0 if held. The wait
--            assumes that no lease is released, which can shorten it, or renewed, which can lengthen it
--   renew    for each lease: 1 if it is renewed, 2 if it was added again, 0 if it has ended
--   inspect  the last token, the birth, the longest TTL in ms and, for each lease in the order of their
--            ends: id, units, token, end, and holder (a string, empty if unknown)
--
-- A call whose reply was lost can be sent again. A lease is identified by its id alone, so a release finds
-- the lease even if it has been renewed since. An acquire that arrives after the release of its id holds
-- its units for TTL.
--
-- A lease is held while now is before its end. A call adds a lease only if no more than the Max of that
-- call are then held. A holder must count TTL from before it sent its call.
--
-- A token is the time of its lease in us, or more: each token is greater than all tokens before it. The
-- birth of a record is its first token. If a lease to renew is not in the record:
--   If its token is from the birth to the last token, the record had the lease, and the lease has ended.
--   Otherwise the lease was in an earlier record, which was lost (by eviction or a failover). It is added
--   again if its units fit. When such a lease ends, its id stays, so that a late renewal does not revive it.
--
-- If the clock steps back, no lease ends later than the longest TTL from now. All verbs except inspect
-- and reset write these earlier ends, even if they deny or find nothing. Inspect replies as if they were
-- written.
--
-- Writes: PEXPIRE, ZADD and ZREM, after everything is read and validated. The key lives 10 minutes longer
-- than its last lease, so tokens increase unless the clock steps back by more than that. A new lease drops
-- leases that have ended, because a clock step back would revive them in addition to the new one. PEXPIRE
-- comes first, except when a new lease is acquired: Redis allows PEXPIRE when memory is full, and then lets
-- the other writes pass. When memory is full, a new lease fails with an error from Redis, unless it drops
-- others. A call that changes nothing writes nothing.
-- Errors, before anything is written: WRONGTYPE or SLIDEGATE, and a sentence that names the key. If an
-- argument is not a number, the error is Lua's.
--
-- The record is a sorted set. Its first member is the head, and the other members differ in the length of
-- their names. u numbers the units of a lease: 0 to n - 1. Numbers in names are big endian.
--   name                             score
--   byte 200, 7 bytes birth in us,   - (last token + 1)
--     6 bytes longest TTL in ms
--   id                               - token
--   id, 2 bytes of u                 its end
--   id, 2 bytes of 0, holder         - token
-- Scores are in us, like tokens, so one reading of the clock serves both, and nothing is rounded.
-- In ZRANGE WITHSCORES, the members with positive scores are units.

local redis, A, key = redis, ARGV, KEYS[1]
local op, now, count = A[1], A[2], #A

-- The arguments. Those of the leases are from first to count, with width arguments for each lease.
local width = op == 'acquire' and 3 or op == 'renew' and 4 or op == 'release' and 2 or 0
local first, ttl, holder, grace, units = 3, 1, '', 0, 0
if width > 2 then
  first, ttl = 4, A[3] + 0
  if (count - 3) % width == 1 then holder, count = A[count], count - 1 end
end
if now == '' then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
else
  -- If callers pass the time, keep the key for one more day, because the callers' clock may be behind.
  now, grace = now + 0, 86400000
end
local valid = #KEYS == 1 and now >= 1 and now <= 9000000000000000 and now % 1 == 0 and
  ttl >= 1 and ttl <= 4294967296 and ttl % 1 == 0 and #holder <= 32
if width == 0 then
  valid = valid and (op == 'inspect' or op == 'reset') and count == 2
else
  valid = valid and count > first and (count - first + 1) % width == 0 and (width ~= 3 or count == 6)
  for i = first, valid and count or 0, width do
    local n, max, token = A[i + 1] + 0, width > 2 and A[i + 2] + 0 or 1000, width > 3 and A[i + 3] + 0 or 1
    units = units + n
    valid = valid and #A[i] == 8 and n >= 1 and n <= max and max <= 1000 and n % 1 + max % 1 == 0 and
      token >= 1 and token <= 9000000000000000 and token % 1 == 0
  end
end
if not valid or units > 1000 then
  return redis.error_reply('SLIDEGATE key ' .. key .. ': invalid arguments (see the header of inflight.lua)')
end

-- A small record is read as a whole. For a larger record, the head is read, and the rest is looked up as
-- needed.
local small, never = redis.pcall('ZCARD', key), 9007199254740992
if type(small) == 'table' then
  if small.err:sub(1, 9) ~= 'WRONGTYPE' then return small end
  return redis.error_reply('WRONGTYPE key ' .. key .. ' holds no sorted set; remove it, or rename the limiter')
end
small = small < 10
local v = redis.call('ZRANGE', key, 0, small and -1 or 0, 'WITHSCORES')
local head, tokens, birth, longest = v[1], 0, 0, 0 -- tokens: the minimum for the next token
if head then
  local byte
  tokens = 0 - v[2]
  if #head == 14 then byte, birth, longest = struct.unpack('>BI7I6', head) end
  if byte ~= 200 or tokens < birth or tokens >= never or tokens % 1 > 0 or birth < 1 or longest < 1 or longest > 4294967296 then
    return redis.error_reply('SLIDEGATE key ' .. key ..
      ' holds no record that this version reads; remove it, or rename the limiter')
  end
end
if op == 'reset' then return {head and redis.call('DEL', key) or 0, now, 0} end

local latest, held, over, ended = now + longest * 1000, 0, 0, 0 -- latest: no lease ends later
if small then
  for i = 4, #v, 2 do
    local score = v[i] + 0
    v[i] = score
    if score > now then
      held = held + 1
      if score > latest then over = 1 end
    elseif score > 0 then
      ended = 1
    end
  end
else
  held, over = redis.call('ZCOUNT', key, now + 1, never), redis.call('ZCOUNT', key, latest + 1, never)
end
local reply = {0, now, held, nil, nil}

if op == 'inspect' then
  local all, since, who, places = redis.call('ZRANGE', key, 1, -1, 'WITHSCORES'), {}, {}, {}
  reply[4], reply[5], reply[6] = head and tokens - 1 or 0, birth, longest
  for i = 1, #all, 2 do
    local name, score = all[i], all[i + 1] + 0
    local id = name:sub(1, 8)
    if #name == 8 then
      since[id] = 0 - score
    elseif #name > 10 then
      who[id] = name:sub(11)
    elseif score > now then
      local place = places[id]
      if not place then
        place = #reply + 1
        reply[1], places[id] = reply[1] + 1, place
        reply[place], reply[place + 1], reply[place + 2] = id, 0, since[id] or 0
        reply[place + 3], reply[place + 4] = math.min(score, latest), who[id] or ''
      end
      reply[place + 1] = reply[place + 1] + 1
    end
  end
  return reply
end

-- members returns the names of at most a thousand members whose scores are from least to most.
local function members(least, most)
  if not small then return redis.call('ZRANGEBYSCORE', key, least, most, 'LIMIT', 0, 1000) end
  local names = {}
  for i = 4, #v, 2 do
    if v[i] >= least and v[i] <= most then names[#names + 1] = v[i - 1] end
  end
  return names
end

-- scoreOf returns the score of a member, or false or nil if there is no such member.
local function scoreOf(name)
  if not small then
    local score = redis.call('ZSCORE', key, name)
    return score and score + 0
  end
  for i = 3, #v, 2 do
    if v[i] == name then return v[i + 1] end
  end
end

-- What to write: scores and names to add, and names to remove.
local adds, added, drops, pack = {nil, nil, nil, nil, nil, nil}, 0, {nil, nil}, struct.pack

-- If the clock stepped back, bring forward ends that are too late.
if over > 0 then
  for _, name in ipairs(members(latest + 1, never)) do
    adds[added + 1], adds[added + 2], added = latest, name, added + 2
  end
end

-- unit returns the name of unit u of a lease.
local function unit(id, u)
  return u == 0 and id .. '\0\0' or id .. pack('>I2', u)
end

-- isHeld reports whether a lease of n units is held.
local function isHeld(id, n)
  return (scoreOf(unit(id, n - 1)) or 0) > now
end

-- enter gives all units of a lease the new end. If there is a token, it adds the lease.
local function enter(id, n, token)
  for u = 0, n - 1 do
    adds[added + 1], adds[added + 2], added = now + ttl * 1000, unit(id, u), added + 2
  end
  if token then
    adds[added + 1], adds[added + 2], added = 0 - token, id, added + 2
    if holder ~= '' then
      adds[added + 1], adds[added + 2], added = 0 - token, id .. '\0\0' .. holder, added + 2
    end
    if token >= tokens then tokens = token + 1 end
    held = held + n
  end
end

-- forget drops the members of a lease, except its units.
local function forget(id)
  local score = scoreOf(id)
  for _, name in ipairs(score and members(score, score) or {}) do
    if name:sub(1, 8) == id and (#name > 8 or 0 - score >= birth) then drops[#drops + 1] = name end
  end
end

local fresh, entered = false, false -- fresh: a lease that was not held is acquired
if op == 'acquire' then
  local id, more = A[4], A[6] - units -- more: how many units others may hold
  local score = isHeld(id, units) and scoreOf(id)
  reply[1], reply[5] = 1, 0
  if score then
    reply[4] = 0 - score
    enter(id, units)
  elseif held <= more then
    local token = now > tokens and now or tokens
    fresh, entered, reply[4] = true, true, token
    if not head then birth = token end
    enter(id, units, token)
  else
    local last = small and v[#v - 2 * more] or redis.call('ZRANGE', key, -1 - more, -1 - more, 'WITHSCORES')[2]
    reply[1], reply[4], reply[5], ttl = 0, 0, math.ceil((math.min(last + 0, latest) - now) / 1000), 0
  end
elseif op == 'renew' then
  local given, states = tokens, {}
  for i = first, count, 4 do
    local id, n, token = A[i], A[i + 1] + 0, A[i + 3] + 0
    local state = states[id]
    if not state then
      state = 0
      if isHeld(id, n) then
        state = 1
        enter(id, n)
      elseif (token < birth or token >= given) and held + n <= A[i + 2] + 0 and not scoreOf(id) then
        state, entered = 2, true
        enter(id, n, token)
      end
      states[id] = state
    end
    if state > 0 then reply[1] = reply[1] + 1 end
    reply[#reply + 1] = state
  end
  if reply[1] == 0 then ttl = 0 end
  if not head then
    if now > tokens then tokens = now end
    birth = tokens
  end
else
  for i = first, count, 2 do
    local id, n = A[i], A[i + 1] + 0
    if not drops[id] and isHeld(id, n) then
      reply[1], held, drops[id] = reply[1] + 1, held - n, true
      for u = 0, n - 1 do drops[#drops + 1] = unit(id, u) end
      forget(id)
    end
  end
end

-- A new lease drops leases that have ended.
if entered and (small and ended or redis.call('ZCOUNT', key, 1, now)) > 0 then
  for _, name in ipairs(members(1, now)) do
    drops[#drops + 1] = name
    if name:sub(9) == '\0\0' then forget(name:sub(1, 8)) end
  end
end
reply[3] = held
if added + #drops == 0 then return reply end

-- Write.
if not head or ttl > longest or tokens + v[2] > 0 then
  if ttl > longest then longest = ttl end
  local name = pack('>BI7I6', 200, birth, longest)
  if head and name ~= head then drops[#drops + 1] = head end
  adds[added + 1], adds[added + 2], added = 0 - tokens, name, added + 2
end
local unpack, life = unpack or table.unpack, longest + 600000 + grace
local done = fresh or redis.pcall('PEXPIRE', key, life) -- after the first write, no later one fails
if type(done) == 'table' then return done end
if op == 'release' and added > 0 then -- ends brought forward come first, because they may include what is released
  redis.call('ZADD', key, unpack(adds, 1, added))
  added = 0
end
if #drops > 0 then done = redis.pcall('ZREM', key, unpack(drops)) end
if added > 0 and type(done) ~= 'table' then done = redis.pcall('ZADD', key, unpack(adds, 1, added)) end
if type(done) == 'table' then return done end
if fresh or not head then redis.call('PEXPIRE', key, life) end
return reply
