-- Assembled from the blocks in lua/src by go generate ./lua; change those instead.
-- pace.lua books turns for an event, in the order in which the calls arrive. A turn is the earliest
-- time at which several sliding windows allow its units, and which is not before any turn booked
-- earlier. The whole state of an event is in one key.
--
-- KEYS[1]  the key of the event: Name:{tag}:r. The tag is made as for window.lua
-- ARGV[1]  what to do:
--            book     book k turns of n units each, one after the other, like k calls for one turn.
--                     It stops at the first turn that would be beyond the horizon
--            cancel   give back the units of a turn that an earlier call booked. The floor stays: no
--                     later booking gets a turn before those already booked
--            pause    let no turn come before now + D. If D is longer than what is left of an earlier
--                     pause, all turns from now on move by the difference. Otherwise nothing changes
--            due      reply with the shift and the end of the pause, and change nothing
--            inspect  reply with the state, bucket by bucket
--            reset    forget the event, even if its record is truncated
-- ARGV[2]  now, in ms since 1970 (below 2^47), or empty to use the clock of this server
-- ARGV[3]  for book: k, 1 to 4096. Otherwise: n, in units, 1 to 2^53. For inspect it is at most the
--          smallest Max. For pause, due and reset it is 1
-- ARGV[4 + 2i], [5 + 2i]  limit i = 0, 1, ... 30: Per in ms (1 to 2^44, except 2^32 - 1) and Max in
--          units (1 to 2^53). No two limits have the same Per. Only book and cancel need a limit
-- The last ARGV:
--   book     the horizon: how far after now a turn may be, in ms (0 to 2^44); and n, 1 to the smallest Max
--   cancel   the turn as in the reply to book, in ms since 1970; and the shift in that reply
--   pause    D, in ms (0 to 2^44)
--
-- Reply: a list of integers. Times are in ms since 1970; waits are in ms from now.
--   All replies start with these four integers:
--     for book, how many turns are booked; for inspect and due, 0; for the other verbs, 1 if anything
--     changed, otherwise 0
--     the time of the decision
--     the shift: the sum of the delays added by all pauses
--     the end of the last pause, which may be over, or 0
--   Then come:
--   book     the wait until the next turn can be booked, or 0 if all are booked; and each turn
--   inspect  the floor, which is the newest turn ever booked (or 0), and the turn that n units would
--            get. Then for each limit: the units used, the wait until it allows n more units, the wait
--            until it is as if never used, the number of buckets and, oldest first, the time and units
--            of each bucket. Then for each other section of the record: its Per, the units used, the
--            wait until it is as if never used, and its buckets as above
--
-- Turns move with each pause. A turn that was booked for a time, when the shift was S, is due at
--   max(time + current shift - S, the end of the last pause)
-- If time + current shift - S is before the end of the last pause, the turn came before that pause.
-- Cancel then gives nothing back.
--
-- A limit whose Max is at most 256 is exact. A larger limit counts in buckets of Per/240, rounded up:
-- its turns, and those of all limits with the same Per, are never early, and at most one bucket late.
-- A pause moves buckets along with their boundaries. It moves the current bucket as a whole, so turns in
-- that bucket that have already come count longer by the length of the pause.
--
-- If the clock is behind the last write, turns and pauses may be no further in the future than they were
-- then. Turns later than now + (floor - clock of the last write), or than now if that is later, are moved
-- to that time. The end of the pause keeps its distance to the clock in the same way.
--
-- After that, a new turn can get the time of a turn that was booked before the clock stepped back. So
-- cancel gives nothing back for turns that are not after stepped: the newest turn before the step, or
-- the end of the pause if that was later, plus the delays that pauses have added since. Such a turn
-- stays empty.
--
-- Writes: one SET with PX, or one DEL, for book, cancel and pause if anything changes; one DEL for
-- reset. If callers give the time, only reset deletes, because their clock may step back. If book books
-- nothing, it writes only if it had to move times because the clock stepped back.
-- Errors, before anything is written: WRONGTYPE or SLIDEGATE, and a sentence that names the key. If an
-- argument is not a number, the error is Lua's.
--
-- The record. A bucket is (newest turn in it, units). It is forgotten when the floor or the clock is
-- Per after it, because it can then no longer delay a turn. A record therefore never holds more than
-- Max units of a limit. Numbers are big endian.
--   byte      the format: 248, or 249 after a pause
--   byte      the number of sections, 0 to 31, and one more if it holds stepped
--   6 bytes   the floor
--   6 bytes   the clock at the last write
--   6 bytes   the end of the last pause (249)
--   6 bytes   the shift (249)
--   then for each limit a section, as in a record of window.lua. T is the floor, and flag 4 means
--   Per/240, rounded up. There is no other Resolution (flag 8)
-- While stepped matters, a section of Per 2^32 - 1 without closed buckets holds it as the units of a
-- turn at 0. To versions that do not know stepped, this section is forgotten, and they drop it.

local struct = rawget(_G, 'struct')
if not struct then
  struct = {}

  -- fields iterates over the fields of a format: the width of an integer in bytes, or d for a double.
  local function fields(format) return format:gsub('B', '1'):gmatch('[%dd]') end

  local function bytes(n, width)
    return (width > 1 and bytes(math.floor(n / 256), width - 1) or '') .. string.char(n % 256)
  end

  local function number(s, at, width)
    local n = 0
    for i = at, at + width - 1 do n = n * 256 + (s:byte(i) or error('data string too short')) end
    return n
  end

  -- A double is (1 + m / 2^52) x 2^e: 12 bits hold e + 1023, and 52 bits hold m. This is true of levels.
  -- What no level is, 0, subnormal, negative or not a number, reads as less than 2^-1022 or as infinite.
  function struct.pack(format, ...)
    local all, i = '', 0
    for width in fields(format) do
      i = i + 1
      local n = select(i, ...)
      if width == 'd' then
        local half, e = math.frexp(n)
        local m = (half * 2 - 1) * 2 ^ 52
        all = all .. bytes((e + 1022) * 2 ^ 20 + math.floor(m / 2 ^ 32), 4) .. bytes(m % 2 ^ 32, 4)
      else
        all = all .. bytes(n, width + 0)
      end
    end
    return all
  end

  function struct.unpack(format, s, at)
    local all = {}
    at = at or 1
    for width in fields(format) do
      if width == 'd' then
        local high, low = number(s, at, 4), number(s, at + 4, 4)
        all[#all + 1] = math.ldexp(1 + (high % 2 ^ 20 * 2 ^ 32 + low) / 2 ^ 52, math.floor(high / 2 ^ 20) - 1023)
        at = at + 8
      else
        all[#all + 1] = number(s, at, width + 0)
        at = at + width
      end
    end
    all[#all + 1] = at
    return unpack(all)
  end
end
local redis, read, write, A, key = redis, struct.unpack, struct.pack, ARGV, KEYS[1]

local now, grace
-- The verb, and its last arguments:
--   turns, horizon  book: how many turns of n units, and how far after now they may be
--   turn, oldShift  cancel: the turn as in the reply to book, and the shift in that reply
--   length          pause: D
-- count is where the arguments of the limits end, least the minimum number of limits, and most the
-- minimum for each Max.
local op, n, count, least, most = A[1], A[3] == '1' and 1 or A[3] + 0, #A, 0, 1
local valid, turns, horizon, turn, oldShift, length = n >= 1 and n <= 9007199254740992 and n % 1 == 0 and #KEYS == 1
if op == 'book' then
  turns, horizon, n, count = n, A[count - 1] + 0, A[count] == '1' and 1 or A[count] + 0, count - 2
  least, most, valid = 1, n, valid and turns <= 4096 and n >= 1 and n <= 9007199254740992 and n % 1 == 0 and
    horizon >= 0 and horizon <= 17592186044416 and horizon % 1 == 0
elseif op == 'cancel' then
  turn, oldShift, count, least = A[count - 1] + 0, A[count] + 0, count - 2, 1
  valid = valid and turn >= 0 and turn <= 281474976710655 and turn % 1 == 0 and
    oldShift >= 0 and oldShift <= 281474976710655 and oldShift % 1 == 0
elseif op == 'pause' then
  length, count = A[count] + 0, count - 1
  valid = valid and length >= 0 and length <= 17592186044416 and length % 1 == 0
elseif op == 'inspect' then
  most = n
else
  valid = valid and (op == 'due' or op == 'reset')
end
now = A[2]
if now == '' then
  local t = redis.call('TIME')
  local us = t[2] + 0
  now = t[1] * 1000 + (us - us % 1000) / 1000
else
  now = now + 0
  grace = 86400000 -- keep keys for one more day, because the callers' clock may be behind
  valid = valid and now >= 0 and now < 140737488355328 and now % 1 == 0
end
local limits = (count - 3) / 2
if not (valid and limits % 1 == 0 and limits <= 31 and limits >= least) then
  return redis.error_reply('SLIDEGATE key ' .. key .. ': invalid arguments (see the header of pace.lua)')
end

-- The limits. maxes[Per] is the Max, or true once a section for that Per is found.
local maxes = {}
for i = 4, count, 2 do
  local per, max = A[i] + 0, A[i + 1] + 0
  if not (per >= 1 and per <= 17592186044416 and per ~= 4294967295 and most <= max and max <= 9007199254740992 and
    per % 1 + max % 1 == 0) then
    return redis.error_reply(string.format(
      'SLIDEGATE key %s: limit %d or the units are invalid (see the header of pace.lua)', key, i / 2 - 1))
  end
  if maxes[per] then
    return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
  end
  maxes[per] = max
end

-- The head of the record. unread is how many of its sections are still to be read. Below 0, it is no
-- record.
--   clock            the clock at the last write
--   pauseEnd, shift  the end of the last pause, and the sum of the delays added by all pauses
--   pos              where the next section starts
local v = redis.pcall('GET', key)
local floor, clock, pauseEnd, shift, pos, len, unread, failure = 0, 0, 0, 0, 15, 0, 0
if v then
  len = #v -- 0 if v is an error
  local first
  if len > 13 then
    first, unread, floor, clock = read('>BBI6I6', v)
  elseif v.err then
    failure = v.err
    if failure:sub(1, 9) == 'WRONGTYPE' then
      failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
    end
  end
  if first == 249 and len > 25 then
    pauseEnd, shift, pos = read('>I6I6', v, 15)
  elseif first ~= 248 then
    unread = -1
  end
end
if op == 'reset' and unread >= 0 then return {redis.call('DEL', key), now, 0, 0} end

-- stepped is the newest turn that was booked before the clock last stepped back, or 0.
-- The sections of the record, and then sections for limits that have none in the record. Each section is
-- a table in sections:
--   per, max          the Per, and the Max of the caller's limit; max is nil if the caller has no such limit
--   last, open        the time and the units of the last bucket
--   coarse            whether the last bucket accepts turns in the same Per/240
--   total, closed     the units of all buckets (0 if there are none), and how many buckets are closed
--   v, at, fin        the closed buckets start at at in v, and end before fin; the newest comes first
--   w, u, pair, wrap  how many bytes the time and the units of a closed bucket take, the format that
--                     reads both, and 256^w
local sections, taken, stepped = {nil, nil, nil, nil}, 0, 0
do
  local T, i = floor, 4
  local last, total, open, w, pair, wrap, res
  while (pos <= len or i < count) and unread >= 0 do
    local start, flags, closed, per, at, u = pos, 0, 0, 0, pos, 0
    if start > len then
      while i < count and per == 0 do
        per, i = A[i] + 0, i + 2
        if maxes[per] == true then per = 0 end
      end
      if per == 0 then break end
    elseif start + 5 > len then
      unread = -1
      break
    else
      flags, closed, per, at = read('>BBI4', v, start)
      unread = unread - 1
    end
    if flags > 31 and pos + 8 <= len then -- a wide head
      flags, closed, per, at = read('>BI2I6', v, pos)
      flags = flags - 32
    end
    if per < 65536 then
      w, pair, wrap = 2, '>I2', 65536
      if per == 0 then unread = -1 end
    elseif per < 16777216 then
      w, pair, wrap = 3, '>I3', 16777216
    elseif per < 4294967296 then
      w, pair, wrap = 4, '>I4', 4294967296
    else
      w, pair, wrap = 6, '>I6', 281474976710656
      if per > 17592186044416 then unread = -1 end
    end
    last = T
    total = closed + 1
    open = 1
    if flags == 0 then
      pos = at + closed * w
    else
      u = flags % 4
      if u > 1 then u = u * 4 - 5 end
      pos = at + u + u + closed * (w + u) + (flags % 16 > 7 and 6 or 0)
      if flags > 15 then pos = pos + 6 end
      if pos > len + 1 or flags > 31 or flags % 16 > 11 then
        unread = -1
      else
        if flags > 15 then
          last, at = read('>I6', v, at)
          flags = flags - 16
          if last > T + per then unread = -1 end
        end
        if flags > 7 then res, at = read('>I6', v, at) end
        if u == 1 then
          total, open, at = read('>BB', v, at)
          pair = w == 4 and '>I4B' or w == 3 and '>I3B' or w == 2 and '>I2B' or '>I6B'
        elseif u > 1 then
          total, open, at = read(u == 3 and '>I3I3' or '>I7I7', v, at)
          pair = pair .. (u == 3 and 'I3' or 'I7')
          if total > 9007199254740992 then unread = -1 end
        end
      end
    end
    local max = maxes[per]
    if start > len then
      total, open = 0, 0
    elseif unread < 0 or pos > len + 1 or res or max == true or last > floor or open < 1 or total < open + closed then
      unread = -1 -- res: a Resolution in a field, which only window has
      break
    end
    maxes[per] = true
    if per == 4294967295 then
      stepped = open
    else
      taken = taken + 1
      sections[taken] = {per = per, max = max, last = last, open = open, coarse = flags > 3, total = total,
        closed = closed, v = v, at = at, fin = pos, w = w, u = u, pair = pair, wrap = wrap}
    end
  end
end
if unread ~= 0 and not failure then
  failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
    (v:byte(1) or 0) .. ', or cut short); remove it, or rename the limiter'
end
if failure then return redis.error_reply(failure) end

-- bucket returns the time and the units of the closed bucket at p.
local function bucket(s, p)
  local b, c = read(s.pair, s.v, p)
  return s.last - (s.last - b) % s.wrap, s.u > 0 and c or 1
end

-- widen makes the buckets of a section wide enough for their units.
local function widen(s)
  local total, closed, u = s.total, s.closed, s.u
  -- fits is how many bytes units take: 0 if every bucket holds 1.
  local fits = total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
  if fits > u then
    local body, w = closed > 0 and s.v:sub(s.at, s.fin - 1) or '', s.w
    local wider = {}
    for i = 1, closed do
      local p = (i - 1) * (w + u) + 1
      local held = u == 0 and 1 or read(u == 1 and '>I1' or '>I3', body, p + w)
      wider[i] = body:sub(p, p + w - 1) .. write('>I' .. fits, held)
    end
    body = table.concat(wider)
    s.v, s.u, s.pair, s.at, s.fin = body, fits, '>I' .. w .. 'I' .. fits, 1, #body + 1
  end
end

local broken = false -- the units of a section do not add up

-- forget drops the buckets that cannot restrict any turn from date on.
local function forget(s, date)
  local per, last, closed, total, p, step = s.per, s.last, s.closed, s.total, s.fin, s.w + s.u
  if last + per <= date then
    s.total, s.open, s.closed, s.u, s.pair, s.at, s.fin = 0, 0, 0, 0, s.pair:sub(1, 3), 1, 1
    return
  end
  while closed > 0 do
    local b, c = read(s.pair, s.v, p - step)
    if last - (last - b) % s.wrap + per > date then break end
    total, closed, p = total - (s.u > 0 and c or 1), closed - 1, p - step
  end
  s.closed, s.total, s.fin, broken = closed, total, p, broken or total < s.open + closed
end

local changed = false
if now < clock then
  -- From now on, a turn can get a time that was given to another turn before. No turn that was booked
  -- before, even if a pause has moved its time, is later than stepped.
  local newest = math.max(floor, pauseEnd)
  if newest >= now and newest > stepped then stepped = newest end

  -- The clock stepped back. No turn stays further in the future than it was at the last write.
  local latest = now + math.max(floor - clock, 0)
  for _, s in ipairs(sections) do
    if s.last > latest then
      while s.closed > 0 do
        local t, units = bucket(s, s.at)
        if t < latest then break end
        s.open, s.closed, s.at = s.open + units, s.closed - 1, s.at + s.w + s.u
      end
      s.last = latest -- less than Per after the closed buckets, so their times stay as they are
      broken = broken or s.total < s.open + s.closed
      if s.total > 0 then widen(s) end
    end
  end
  if floor > latest then floor, changed = latest, true end
  latest = now + math.max(pauseEnd - clock, 0)
  if pauseEnd > latest then pauseEnd, changed = latest, true end
end

local date = now < floor and floor or now -- no later turn is before this
local reply = {0, now, shift, pauseEnd, nil, nil}
if op == 'book' then
  -- A turn is the earliest time t at which every limit allows n units, and that is not before now, the
  -- newest turn or the end of the pause. Once its units are counted, the search goes on from t.
  local booked, t = 0, date < pauseEnd and pauseEnd or date
  reply[5] = 0
  while booked < turns do
    for i = 1, taken do
      local s = sections[i]
      -- need is how many of the oldest units have to be forgotten first. A bucket is forgotten Per after its
      -- time. If the closed buckets hold fewer than need, that includes the last bucket. Otherwise go through
      -- them, oldest first, until they make up need.
      local max, total, earliest = s.max, s.total, 0
      local need = max and total - (max - n) or 0
      if need > total - s.open then
        earliest = s.last + s.per
      elseif need > 0 then
        local p, units = s.fin
        if s.u == 0 then p, need = p - (need - 1) * s.w, 1 end -- every bucket holds 1
        while need > 0 and p > s.at do
          p = p - s.w - s.u
          earliest, units = bucket(s, p)
          need = need - units
        end
        earliest = earliest + s.per
      end
      if earliest > t then t = earliest end
    end

    if t > now + horizon then
      reply[5] = t - horizon - now
      break
    end

    for i = 1, taken do
      local s = sections[i]
      if s.max then
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
      end
    end
    floor, booked = t, booked + 1
    reply[5 + booked] = t
  end
  reply[1], changed = booked, changed or booked > 0
elseif op == 'cancel' then
  -- t is when the turn is due. A turn that came before the last pause, that was booked under a larger
  -- shift, or that may have been booked before the clock stepped back, gives nothing back.
  local t = turn + shift - oldShift
  for _, s in ipairs(sections) do
    forget(s, date)
    if s.max and s.total > 0 and t <= s.last and t + s.per > date and t >= pauseEnd and t > stepped and oldShift <= shift then
      -- The units are in the first bucket that is not before t.
      local p, step, at, units = s.fin, s.w + s.u, s.last, s.open
      local width = s.max > 256 and math.ceil(s.per / 240) or 1
      while p > s.at do
        local b, c = bucket(s, p - step)
        if b >= t then at, units = b, c break end
        p = p - step
      end
      if at - t < width then
        local closed, rest = p > s.at, units > n and units - n or 0
        changed, reply[1], s.total = true, 1, s.total - units + rest
        if closed then
          local kept = rest > 0 and write(s.pair, at % s.wrap, rest) or ''
          s.v = s.v:sub(s.at, p - step - 1) .. kept .. s.v:sub(p, s.fin - 1)
          s.at, s.fin, s.closed = 1, #s.v + 1, rest > 0 and s.closed or s.closed - 1
        elseif rest > 0 then
          s.open = rest
        elseif s.closed > 0 then
          -- The newest closed bucket becomes the last one. No turn at another time joins it.
          local last, open = bucket(s, s.at)
          s.last, s.open, s.coarse, s.closed, s.at = last, open, false, s.closed - 1, s.at + step
        else
          s.open = 0
        end
      end
    end
  end
elseif op == 'pause' then
  -- added is by how much the pause is longer than what is left of an earlier one.
  local added = now + length - math.max(now, pauseEnd)
  if added > 0 then
    for _, s in ipairs(sections) do
      if s.last >= now and s.total > 0 then
        local body, step, last = {}, s.w + s.u, s.last + added
        for i = 1, s.closed do
          local t, units = bucket(s, s.at + (i - 1) * step)
          if t >= now then t = t + added end
          if t + s.per <= last then
            s.total = s.total - units -- the bucket is forgotten by then
          else
            body[#body + 1] = write(s.pair, t % s.wrap, units)
          end
        end
        s.v, s.last, s.closed = table.concat(body), last, #body
        s.at, s.fin = 1, #s.v + 1
      end
    end
    if floor >= now then floor = floor + added end
    if stepped > 0 then stepped = stepped + added end
    pauseEnd, shift, changed = now + length, shift + added, true
    if shift > 281474976710655 then
      return redis.error_reply('SLIDEGATE key ' .. key .. ' has been paused for longer than it can count; reset it')
    end
    reply[1], reply[3], reply[4] = 1, shift, pauseEnd
  end
elseif op == 'inspect' then
  local t, byPer = date < pauseEnd and pauseEnd or date, {}
  for _, s in ipairs(sections) do
    -- need is how many of the oldest units have to be forgotten first. A bucket is forgotten Per after its
    -- time. If the closed buckets hold fewer than need, that includes the last bucket. Otherwise go through
    -- them, oldest first, until they make up need.
    local max, total, earliest = s.max, s.total, 0
    local need = max and total - (max - n) or 0
    if need > total - s.open then
      earliest = s.last + s.per
    elseif need > 0 then
      local p, units = s.fin
      if s.u == 0 then p, need = p - (need - 1) * s.w, 1 end -- every bucket holds 1
      while need > 0 and p > s.at do
        p = p - s.w - s.u
        earliest, units = bucket(s, p)
        need = need - units
      end
      earliest = earliest + s.per
    end
    if earliest > t then t = earliest end
    s.earliest, byPer[s.per] = earliest, s
  end
  reply[5], reply[6] = floor, t -- the turn that n units would get

  local function add(...)
    for _, number in ipairs({...}) do reply[#reply + 1] = number end
  end
  local function addSection(s)
    forget(s, date)
    add(s.total)
    if s.max then add(math.max(s.earliest - now, 0)) end
    if s.total > 0 then
      add(s.last + s.per - now, s.closed + 1)
      for i = s.closed, 1, -1 do
        local at, units = bucket(s, s.at + (i - 1) * (s.w + s.u))
        reply[#reply + 1] = at
        reply[#reply + 1] = units
      end
      add(s.last, s.open)
    else
      add(0, 0)
    end
  end
  for i = 4, count, 2 do addSection(byPer[A[i] + 0]) end
  for _, s in ipairs(sections) do
    if not s.max and s.last + s.per > date then
      add(s.per)
      addSection(s)
    end
  end
  if broken then
    return redis.error_reply('SLIDEGATE key ' .. key .. ' has units that do not add up; reset it')
  end
  return reply
end

if changed and op ~= 'due' then
  date = now < floor and floor or now
  local out, outs, expiry, longest = '', 0, pauseEnd > date and pauseEnd or date, 0
  for i = 1, taken do
    local s = sections[i]
    if not (turns and s.max) then forget(s, date) end -- book forgets them itself
    local closed, per, last, total, open, u = s.closed, s.per, s.last, s.total, s.open, s.u
    if total > 0 then
      if broken or closed > 65535 then
        return redis.error_reply('SLIDEGATE key ' .. key .. ' has ' .. (broken and 'units that do not add up' or
          'more buckets than a record can hold') .. '; reset it')
      end
      local flags, fields, body = s.coarse and 4 or 0, '', closed > 0 and s.v:sub(s.at, s.fin - 1) or ''
      if last ~= floor then flags, fields = flags + 16, write('>I6', last) end
      if u == 1 then
        flags = flags + 1
        fields = fields .. write('>BB', total, open)
      elseif u > 1 then
        flags = flags + (u + 5) / 4
        fields = fields .. (u == 3 and write('>I3I3', total, open) or write('>I7I7', total, open))
      end
      if closed > 255 or per > 4294967295 then
        body = write('>BI2I6', flags + 32, closed, per) .. fields .. body
      else
        body = write('>BBI4', flags, closed, per) .. fields .. body
      end
      out, outs = out .. body, outs + 1
      if last + per > expiry then expiry = last + per end
      if per > longest then longest = per end
    end
  end
  if outs > 31 then
    failure = 'SLIDEGATE key ' .. key .. ' would count for more than 31 limits; wait until some are forgotten, or reset it'
  end
  if stepped > 0 and stepped + longest >= date then -- a turn at this time or before it may still count
    out, outs = out .. write('>BBI4I6I7I7', 19, 0, 4294967295, 0, stepped, stepped), outs + 1
    if stepped >= expiry then expiry = stepped + 1 end
  end
  if not failure and (expiry > now or grace) then -- the callers' clock may step back, so their record stays
    local head = pauseEnd > 0 and write('>BBI6I6I6I6', 249, outs, floor, now, pauseEnd, shift) or
      write('>BBI6I6', 248, outs, floor, now)
    failure = redis.pcall('SET', key, head .. out, 'PX', string.format('%.0f', expiry - now + (grace or 0))).err
  elseif not failure and v then
    local deleted = redis.pcall('DEL', key)
    if deleted ~= 0 and deleted ~= 1 then failure = deleted.err end
  end
end
return failure and redis.error_reply(failure) or reply
