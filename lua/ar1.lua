-- ar1.lua decides whether an event may happen under several decaying levels at once, and counts it in all of them or in
-- none. All state of one event is one key.
--
-- Each limit has a level: it grows by 1 with each unit and decays by e^(-time/Per), an AR(1) process. A request for n is
-- admitted while level + n <= C, where C = 1 / (1 - e^(-1/Max)), about Max + 1/2, is the peak of a steady flow of Max per
-- Per. It may come up to 1 us early, and no more than 1/5 of a unit. A level below 1/4 counts as 0. While the clock reads
-- earlier than the record, the levels stay as they were written, and whatever writes dates them to now: so whoever gives
-- a time must give that of one clock for all callers.
--
-- KEYS[1]  the key of the event
-- ARGV[1]  what to do:
--            allow      count the units if every limit admits them
--            count      the same, but count them when a limit denies, too: as many as bring its level to C
--            peek       what allow would answer
--            some       as n calls of allow with one unit, one after the other at this instant: count as many of the n units as
--                       every limit admits
--            countsome  as n calls of count with one unit
--            each       some, and the reply to each of the n calls
--            counteach  countsome, and the reply to each of the n calls
--            inspect    the state
--            refund     give back what is left of units that an earlier call admitted; less than 1/4 may be forgotten
--            reset      forget the event, also where its record is cut short
-- ARGV[2]  now, in us since 1970 (below 2^53); empty: the clock of this server
-- ARGV[3]  n, in units: 1 to 10^7, but at most 4096 for each and counteach, and at most any Max for allow, count, peek and
--          inspect
-- ARGV[4 + 2i], [5 + 2i]  limit i = 0, 1, ... 30: Per in ms (1 to 2^44), Max in units (1 to 10^7). No two limits have the
--          same Per.
-- The last ARGV, for refund alone: the second reply of the call that counted, in us.
--
-- Reply: a list of integers. Times are in us, waits in ms from now, rounded up.
--   allow, count, peek   admitted (1 or 0), now, then for each limit: units used (Max less those that it would admit at
--                        once), wait until it would admit the same request once more, wait until its level counts as 0
--   some, countsome      how many of the n units are admitted (the first ones), now, then for each limit: units used, wait
--                        until it would admit one more unit, wait until its level counts as 0
--   each, counteach      how many are admitted, now, then a row for each of the n calls, in order: the three integers that
--                        each limit would have in its reply. The rows of each end with the first call that is denied: its
--                        row is that of all later ones
--   inspect              0, now, then for each limit the same three (for the units given), and its level in units of 10^-8
--   refund, reset        1 if anything changed, else 0
--
-- Writes: one SET with PX if units are counted; refund one SET or DEL, reset one DEL. If allow, some or each count nothing,
-- they write only if the clock stepped back, to date the levels anew. Peek and inspect never write.
-- Errors, before anything is written: WRONGTYPE or SLIDEGATE and a sentence that names the key; Lua's own where an argument
-- is no number.
--
-- The record; numbers are big endian.
--   byte      160 + the number of sections, 1 to 31: the format
--   7 bytes   when it was written, in us
--   then for each limit a section:
--   4 bytes   Per (4 bytes of 0, then 6 bytes of Per from 2^32 on)
--   8 bytes   the level at that time, a double

local struct, redis, math, A = struct, redis, math, ARGV
local read, write, exp, log = struct.unpack, struct.pack, math.exp, math.log
local REST, MOST_UNITS = 0.25, 1e7 -- a level below REST counts as 0

local key, op, now, n = KEYS[1], A[1], A[2], A[3] == '1' and 1 or A[3] + 0
local valid, simulated = n == 1 or n >= 1 and n <= MOST_UNITS and n % 1 == 0, false
local refund, levels, looks -- levels is for inspect alone
-- counting: denied units are counted, too. climb, for the verbs that stand for n calls of one unit: counts them; rows, for those
-- that reply to each. unit is what one call counts, fit how many calls are admitted.
local counting, climb, rows, unit, fit, asked = false, nil, nil, n, n, n
if op ~= 'allow' then
  refund, levels = op == 'refund', op == 'inspect' and {}
  looks = levels or op == 'peek'
  counting = op == 'count' or op == 'countsome' or op == 'counteach'
  rows = (op == 'each' or op == 'counteach') and {}
  if rows or op == 'some' or op == 'countsome' then
    unit = 1
    -- climb adds units to the level x while it is at most most, up to n of them, and returns the level and how many they are. The
    -- level is that of units added one by one: up to the next power of 2 a sum with a whole number is exact, and so added at once.
    climb = function(x, most, n)
      local count, power = 0, 1
      while count < n and x <= most do
        while power <= x do power = power + power end
        local step, admits = math.ceil(power - x), math.floor(most - x) + 1
        if step > admits then step = admits end
        if step > n - count then step = n - count end
        x, count = x + step, count + step
      end
      return x, count
    end
  end
  valid = valid and (refund or looks or climb or op == 'count' or op == 'reset') and not (rows and n > 4096)
end
if now ~= '' then
  now, simulated = now + 0, true
  valid = valid and now >= 0 and now < 9007199254740992 and now % 1 == 0
else
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local limits = (#A - (refund and 4 or 3)) / 2
if not (valid and limits % 1 == 0 and limits >= 1 and limits <= 31) then
  return redis.error_reply('SLIDEGATE key ' .. key .. ': the arguments are not as the head of ar1.lua asks')
end

local v = redis.pcall('GET', key)
local len, first, at, foreign, per, x, pos
if not v then
  len, first, at, pos = 0, 160, now, 1
else
  len = #v -- 0 if v is an error
  if len > 19 then
    first, at, per, x, pos = read('>BI7I4d', v) -- with the first section
    foreign = first < 161 or first > 191 or at > 9007199254740991
  elseif v.err then
    if v.err:sub(1, 9) ~= 'WRONGTYPE' then return v end
    return redis.error_reply('WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter')
  else
    first, at, foreign = v:byte() or 0, now, true
  end
end
if op == 'reset' and not foreign then return {redis.call('DEL', key)} end

-- The limits. Each has three places in the reply, from 3, 6, 9 on; until the end they hold its Per, the level up to which
-- it admits the units, and its own level. The former is C - n, and a little more: as much as decays in a us, the step of the
-- clock, and as the errors of doubles add up to; at most 1/5 in all, so that no burst and no interval holds more than it
-- may. C - Max is computed for itself, by a series where the formula would lose its digits.
local last = 3 * limits
local reply, longest, a = nil, 0, 2 -- a is the place in ARGV
if limits == 1 then
  reply = {0, now, nil, nil, nil}
else
  reply = {0, now, nil, nil, nil, nil, nil, nil, nil, nil, nil}
end
for i = 3, last, 3 do
  a = a + 2
  local per, max = A[a] + 0, A[a + 1] + 0
  if not (per >= 1 and per <= 17592186044416 and (unit <= max or refund and max >= 1) and max <= MOST_UNITS and per % 1 + max % 1 == 0) then
    return redis.error_reply(string.format('SLIDEGATE key %s: limit %d or the units are not as the head of ar1.lua asks', key, i / 3))
  end
  if per > longest then
    longest = per
  else
    for k = 3, i - 3, 3 do
      if reply[k] == per then
        return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
      end
    end
  end
  local y, above = 1 / max, nil
  local z = y * y
  if max < 20 then above = 1 / (1 - exp(-y)) - max else above = 0.5 + y * (1 / 12 - z * (1 / 720 - z / 30240)) end
  local more = 0.001 / per + max * 1e-15
  if more * max > 0.18 then more = 0.18 / max end
  reply[i] = per
  reply[i + 1] = (max - unit + above) * (1 + more)
end

-- The stored levels, as they are now, and less what is given back. Those of no limit of the caller are carried along.
local admitted, changed, aged, elapsed = not levels, false, (at - now) / 1000, 0
if aged > 0 then aged, changed = 0, not refund end
if refund then
  elapsed = (at > now and at or now) - A[#A]
  elapsed = elapsed > 0 and elapsed / 1000 or 0
end
local out, outs, far, i, sought = '', 0, 0, 0, false
local tail = len - 11 -- where the last section may begin
for section = 161, foreign and 0 or first do
  if section > 161 then
    if pos > tail then
      foreign = true
      break
    end
    per, x, pos = read('>I4d', v, pos)
  end
  if per == 0 then
    foreign = pos + 5 > len
    if not foreign then
      per, x, pos = read('>I6d', v, pos - 8)
      foreign = per < 4294967296 or per > 17592186044416
    end
  end
  if foreign or not (x >= REST and x <= 2e7) then
    foreign = true
    break
  end
  x = x * exp(aged / per)
  i = i + 3
  if reply[i] ~= per then
    i, sought = 3, true
    while i <= last and reply[i] ~= per do i = i + 3 end
  end
  if i <= last then
    if sought and reply[i + 2] then -- no writer stores two sections of one Per
      foreign = true
      break
    end
    if refund and x >= REST then
      local rest = n * exp(-elapsed / per)
      if rest >= REST then x, changed = x - rest, true end
    end
    if x < REST then x = 0 end
    if x > reply[i + 1] then admitted = false end
    reply[i + 2] = x
  elseif x >= REST then
    local left = per * log(x / REST)
    if left > far then far = left - left % 1 + 1 end
    out, outs = out .. (per < 4294967296 and write('>I4d', per, x) or write('>I4I6d', 0, per, x)), outs + 1
  end
end
if foreign or pos ~= len + 1 then
  return redis.error_reply('SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' .. first ..
    ', or cut short); remove it, or rename the limiter')
end

if climb then
  for i = 3, last, 3 do
    local _, count = climb(reply[i + 2] or 0, reply[i + 1], fit)
    fit = count
  end
  admitted = fit > 0
  if not counting then n = fit end
end

-- Count, and make the sections of the record; the first is written with its head.
local adds = (admitted or counting) and not refund
local writes, per1, x1 = (adds or changed) and not looks
local steps = rows and n > 0 and n or 1
for step = 1, steps do
  local row, write_now = reply, writes
  if step < steps then row, write_now = {}, false end
  for i = last, 3, -3 do
    local per, most, x = reply[i], reply[i + 1], reply[i + 2] or 0
    local peak = most + unit -- less than 1 above Max
    if adds then
      if climb and not rows then
        local count
        x, count = climb(x, most, n)
        if count < n and x < peak then x = peak end
      elseif x <= most then
        x = x + unit
      elseif x < peak then
        x = peak
      end
    end
    local max, free, wait, left = peak - peak % 1, peak - x, 0, 0
    local part = free % 1
    if part < 0.2 then -- without what there is more than C - n, it may be one less
      local more = 0.001 / per + max * 1e-15
      if more * max > 0.18 then more = 0.18 / max end
      free = (most - x) / (1 + more) + unit
      part = free % 1
    end
    if x > most then
      wait = per * log(x / most)
      wait = wait - wait % 1
      if wait < 1 or x * exp(-wait / per) > most then wait = wait + 1 end
    end
    if x > 0 then
      left = per * log(x / REST)
      left = left - left % 1 + 1
      if write_now then
        if left > far then far = left end
        outs = outs + 1
        if per > 4294967295 then
          out = write('>I4I6d', 0, per, x) .. out
        elseif i > 3 then
          out = write('>I4d', per, x) .. out
        else
          per1, x1 = per, x
        end
      end
    end
    if levels then levels[i] = x * 1e8 - x * 1e8 % 1 end
    if row ~= reply then reply[i + 2] = x end
    row[i] = free < 0 and max or max - free + part
    row[i + 1] = wait
    row[i + 2] = left
  end
  if rows then rows[step] = row end
end

if levels then
  local all = {0, now}
  for i = 3, last, 3 do
    for k = i, i + 2 do all[#all + 1] = reply[k] end
    all[#all + 1] = levels[i]
  end
  return all
end
if writes then
  if outs > 31 then
    return redis.error_reply('SLIDEGATE key ' .. key .. ' would count for more than 31 limits; wait until some are forgotten, or reset it')
  end
  if outs == 0 then
    redis.call('DEL', key)
  else
    if simulated then far = far + 86400000 end
    redis.call('SET', key, (per1 and write('>BI7I4d', 160 + outs, now, per1, x1) or write('>BI7', 160 + outs, now)) .. out,
      'PX', ('%d'):format(far))
  end
end
if refund then return {changed and 1 or 0} end
if climb then reply[1] = fit elseif admitted then reply[1] = 1 end
if rows then
  local all = {fit, now}
  if not counting and fit > 0 and fit < asked then rows[fit + 1] = reply end
  for _, row in ipairs(rows) do
    for i = 3, last + 2 do all[#all + 1] = row[i] end
  end
  return all
end
return reply
