-- ar1.lua decides whether an event is allowed under several decaying levels at once, and counts it
-- in all of them or in none. The whole state of an event is in one key.
--
-- Each limit has a level. The level grows by 1 with each unit, and decays by e^(-time/Per): it is an
-- AR(1) process. A limit allows a request for n units if level + n <= C. C = 1 / (1 - e^(-1/Max)),
-- about Max + 1/2, is the peak level of a steady flow of Max units per Per. A request may come up to
-- 1 us early, or exceed C by at most 1/5 of a unit. A level below 1/4 counts as 0. If the clock is
-- behind the record, the levels do not decay, and the next write moves the record to the time of the
-- clock. Therefore all callers that pass the time must take it from the same clock.
--
-- One call can decide on several events, each as in a separate call.
--
-- KEYS[k]  the key of event k = 1, 2, ... K: Name:{tag}:a. The tag of an event of at most 128 bytes
--          is the event itself, with %XX (upper case) for %, {, }, a leading ~, space and all bytes
--          that are not printable ASCII. The tag of a longer event is ~ and its SHA-256. With a
--          secret, the tag of every event is ~ and its HMAC-SHA256. Both are in base64url without
--          padding. Examples are in testdata/vectors.json
-- ARGV[1]  what to do:
--            allow      count the units if every limit allows them. Only allow and count take
--                       more than one key
--            count      the same, but count the units even if a limit denies: as many as raise the
--                       limit's level to C
--            peek       reply as allow would, but count nothing
--            some       count as many of the n units as every limit allows, like n consecutive calls
--                       of allow with one unit, all at the same time
--            countsome  count the n units like n calls of count with one unit, including units that
--                       a limit denies
--            each       the same as some, but reply to each of the n calls
--            counteach  the same as countsome, but reply to each of the n calls
--            inspect    reply with the state
--            refund     give back what is left of units that an earlier call allowed. Less than
--                       1/4 of a unit may be ignored
--            reset      forget the event, even if its record is truncated
-- ARGV[2]  now, in us since 1970 (below 2^53), or empty to use the clock of this server
-- ARGV[2 + k]  n for event k, in units: 1 to 10^7. For each and counteach it is at most 4096; for
--          allow, count, peek and inspect it is at most the smallest Max
-- ARGV[3 + K + 2i], [4 + K + 2i]  limit i = 0, 1, ... 30: Per in ms (1 to 2^44), Max in units (1 to
--          10^7). No two limits have the same Per. Inspect needs no limit
-- The last ARGV, only for refund: the second integer in the reply of the call that counted, in us
--
-- Reply: a list of integers. Times are in us; waits are in ms from now, rounded up.
--   allow, count, peek   allowed (1 or 0), now, and for each limit: the units used (Max minus the
--                        units that it would allow at once), the wait until it would allow the same
--                        request once more, and the wait until its level counts as 0
--   some, countsome      how many of the n units are allowed (the first ones), now, and for each
--                        limit: the units used, the wait until it would allow one more unit, and
--                        the wait until its level counts as 0
--   each, counteach      how many of the n calls are allowed, now, and a row for each of the n
--                        calls, in order: the three integers of each limit in the reply to that
--                        call. For the verb each, the row of the first denial is the last row, and
--                        also applies to all later calls
--   inspect              0, now, and for each limit: the same three integers (for the given units),
--                        and its level in units of 10^-8. Then for each other section of the record:
--                        its Per, the wait until its level counts as 0, and its level
--   refund, reset        1 if anything changed, otherwise 0
-- For several keys, these replies follow one another. If an event fails, its first integer is replaced
-- by a string: the error that a call for this event alone would return. Its other integers are
-- meaningless. The other events are still decided.
--
-- Writes: one SET with PX for each event whose units are counted. Refund writes one SET or DEL,
-- reset one DEL. If allow, some or each count nothing, they write only if the clock has stepped back,
-- to move the record to the time of the clock. Peek and inspect never write.
-- Errors, before anything is written: WRONGTYPE or SLIDEGATE, and a sentence that names the key. If
-- arguments are invalid, it names the first key. If an argument is not a number, the error is Lua's.
--
-- The record; numbers are big endian.
--   byte      160 + the number of sections, 1 to 31: the format
--   7 bytes   when it was written, in us
--   then for each limit a section:
--   4 bytes   Per (if Per is 2^32 or more: 4 bytes of 0, then 6 bytes of Per)
--   8 bytes   the level at that time, a double

local struct, redis, math, A = struct, redis, math, ARGV
local read, write, exp, log = struct.unpack, struct.pack, math.exp, math.log
local REST = 0.25 -- a level below it counts as 0

-- The verb. One call counts unit units, and the waits are for one call. All calls together count n.
local keys, op, now, n = #KEYS, A[1], A[2], A[3] == '1' and 1 or A[3] + 0
local valid, unit = n == 1 or n >= 1 and n <= 1e7 and n % 1 == 0, n
local counting, looks, refund -- counting: denied units count too; looks: peek or inspect
local levels, others -- for inspect: the levels of the limits, and the sections that belong to none of them
local singles, lowers, fit -- singles: one call is n calls, of which fit are allowed; lowers: only these count
local rows, simulated, units -- rows: the reply to each call; units: the n of each key, if there are several
if op ~= 'allow' then
  if op == 'some' or op == 'each' then
    singles, lowers = true, true
  else
    counting = op == 'count' or op == 'countsome' or op == 'counteach'
    singles = counting and op ~= 'count'
    refund = op == 'refund'
    if op == 'inspect' then levels, others = {}, {} end
    looks = levels or op == 'peek'
    valid = valid and (counting or looks or refund or op == 'reset')
  end
  if singles or refund or op == 'reset' then unit, fit = 1, 0 end
  if op == 'each' or op == 'counteach' then rows, valid = {0, 0}, valid and n <= 4096 end
end
local most = unit
if keys > 1 then
  units, valid = {n}, valid and (op == 'allow' or op == 'count')
  for k = 2, keys do
    local n = A[k + 2] == '1' and 1 or A[k + 2] + 0
    if n > most then most = n end
    units[k], valid = n, valid and n >= 1 and n % 1 == 0
  end
end
if now ~= '' then
  now, simulated = now + 0, true
  valid = valid and now >= 0 and now < 9007199254740992 and now % 1 == 0
else
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local limits = (#A - keys - (refund and 3 or 2)) / 2
if not (valid and limits % 1 == 0 and limits <= 31 and (limits >= 1 or levels and limits == 0)) then
  return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': invalid arguments (see the header of ar1.lua)')
end

-- The limits. Each has three slots in reply, starting at 3, 6, 9 and so on. Until the end, they hold its
-- Per, the highest level at which it allows a call, and its current level. The highest level is C - unit
-- plus a margin for the decay within 1 us, which is the resolution of the clock, and for the rounding
-- errors of doubles. The margin is at most 1/5 in total, so that no burst and no interval holds more
-- than it may. C - Max is computed separately, with a series where the formula would lose digits.
local last, given = 3 * limits, units and {}
local reply, longest, a = nil, 0, keys + 1 -- a is the index in ARGV
if limits == 1 then
  reply = {0, now, nil, nil, nil}
else
  reply = {0, now, nil, nil, nil, nil, nil, nil, nil, nil, nil}
end
for i = 3, last, 3 do
  a = a + 2
  local per, max = A[a] + 0, A[a + 1] + 0
  if not (per >= 1 and per <= 17592186044416 and most <= max and max <= 1e7 and per % 1 + max % 1 == 0) then
    return redis.error_reply(string.format(
      'SLIDEGATE key %s: limit %d or the units are invalid (see the header of ar1.lua)', KEYS[1], i / 3))
  end
  if per > longest then
    longest = per
  else
    for k = 3, i - 3, 3 do
      if reply[k] == per then
        return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': two limits have the same Per; keep the tighter one')
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
  if given then given[i / 3] = {per, max, above, 1 + more} end
end

-- The record.
local all, place = units and {}, 0
for k = 1, keys do
  local key, v, n, unit = KEYS[k], redis.pcall('GET', KEYS[k]), n, unit
  local len, first, at, foreign, failure, per, x, pos
  if units then
    n = units[k]
    unit = n
  end
  if not v then
    len, first, at, pos = 0, 160, now, 1
  else
    len = #v -- 0 if v is an error
    if len > 19 then
      first, at, per, x, pos = read('>BI7I4d', v) -- with the first section
      if first < 161 or first > 191 or at > 9007199254740991 then foreign = true end
    elseif v.err then
      failure, first, at, foreign = v.err, 0, now, true
      if failure:sub(1, 9) == 'WRONGTYPE' then
        failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
      end
    else
      first, at, foreign = v:byte() or 0, now, true
    end
  end

  if op == 'reset' and not foreign then return {redis.call('DEL', key)} end

  -- The stored levels, decayed to now, minus what is given back. Levels of limits that the caller does
  -- not have are kept, or listed in others.
  local allowed, aged, changed, elapsed = not levels, (at - now) / 1000
  if aged > 0 then aged, changed = 0, not refund end
  if refund then
    elapsed = (at > now and at or now) - A[#A]
    elapsed = elapsed > 0 and elapsed / 1000 or 0
  end
  local out, outs, far, i, sought = '', 0, 0, 0
  local tail = len - 11 -- where the last section may start
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
      if sought and reply[i + 2] then -- no writer stores two sections with the same Per
        foreign = true
        break
      end
      if refund and x >= REST then
        local rest = n * exp(-elapsed / per)
        if rest >= REST then x, changed = x - rest, true end
      end
      if x < REST then x = 0 end
      if x > reply[i + 1] then allowed = false end
      reply[i + 2] = x
    else
      local left = 0
      if x >= REST then
        left = per * log(x / REST)
        left = left - left % 1 + 1
        if left > far then far = left end
        out, outs = out .. (per < 4294967296 and write('>I4d', per, x) or write('>I4I6d', 0, per, x)), outs + 1
      end
      if others then
        if x < REST then x = 0 end
        for _, number in ipairs({per, left, x * 1e8 - x * 1e8 % 1}) do others[#others + 1] = number end
      end
    end
  end
  if not failure and (foreign or pos ~= len + 1) then
    failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
      first .. ', or cut short); remove it, or rename the limiter'
  end
  if failure and not units then return redis.error_reply(failure) end

  local adds = (allowed or counting) and not refund
  local before, calls, call, limit -- before: the levels before the call, if they are needed
  if singles and adds then
    -- climb adds up to count single units to the level x, as long as x is at most most. It returns the
    -- new level and how many units it added. It rounds like the same number of single additions: up to
    -- the next power of 2 these are exact, so climb makes them in one step.
    local function climb(x, most, count)
      local added, power = 0, 1
      while added < count and x <= most do
        while power <= x do power = power + power end
        local step, room = power - x, most - x
        if room < step then step = room - room % 1 + 1 elseif step % 1 > 0 then step = step - step % 1 + 1 end
        if step > count - added then step = count - added end
        x = x + step
        added = added + step
      end
      return x, added
    end
    -- Add the units that each limit allows. If denied units do not count, keep only the units that all
    -- limits allow.
    local again
    fit, before = n, (rows or limits > 1) and {nil, nil, nil}
    for i = 3, last, 3 do
      local x, most, added = reply[i + 2] or 0, reply[i + 1]
      if before then before[i / 3] = x end
      x, added = climb(x, most, lowers and fit or n)
      if counting and added < n and x < most + 1 then x = most + 1 end
      if added < fit then fit, again = added, lowers and i > 3 end
      reply[i + 2] = x
    end
    if again then
      for i = 3, last, 3 do reply[i + 2] = climb(before[i / 3], reply[i + 1], fit) end
    end
    allowed, changed, adds = fit > 0, true, false
  end
  local writes, per1, x1 = (adds or changed) and not looks

  -- Each round of the loop builds a reply. The last round also builds the sections of the record. The
  -- first section is written with the head. Each and counteach take one round for each row. All other
  -- verbs take a single round.
  repeat
    if rows and before then
      if not call then
        calls, call, limit = lowers and fit or n, 0, {}
        for i = 3, last, 3 do limit[i], limit[i + 1] = reply[i], reply[i + 1] end
      end
      -- Add the unit of this call to the levels that the previous call left.
      call = call + 1
      for i = 3, last, 3 do
        local x, most = before[i / 3], limit[i + 1]
        x = x <= most and x + 1 or x < most + 1 and most + 1 or x
        before[i / 3], reply[i], reply[i + 1], reply[i + 2] = x, limit[i], most, x
      end
    end
    for i = last, 3, -3 do
      local per, most, x = reply[i], reply[i + 1], reply[i + 2] or 0
      local peak = most + unit -- less than 1 above Max
      if adds then
        if x <= most then x = x + unit elseif x < peak then x = peak end
      end
      local max, free, wait, left = peak - peak % 1, peak - x, 0, 0
      local part = free % 1
      if part < 0.2 then -- without the margin, it may be one less
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
        if writes and call == calls then
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
      if levels then levels[i / 3] = x * 1e8 - x * 1e8 % 1 end
      reply[i] = free < 0 and max or max - free + part
      reply[i + 1] = wait
      reply[i + 2] = left
    end
    if rows then
      for i = 3, last + 2 do rows[#rows + 1] = reply[i] end
    end
  until call == calls

  if levels then
    local all = {0, now}
    for i = 3, last, 3 do
      for _, number in ipairs({reply[i], reply[i + 1], reply[i + 2], levels[i / 3]}) do all[#all + 1] = number end
    end
    for _, number in ipairs(others) do all[#all + 1] = number end
    return all
  end
  if writes and not failure then
    if outs > 31 then
      failure = 'SLIDEGATE key ' .. key ..
        ' would count for more than 31 limits; wait until some are forgotten, or reset it'
    elseif outs == 0 then
      local deleted = redis.pcall('DEL', key)
      if deleted ~= 0 and deleted ~= 1 then failure = deleted.err end
    else
      if simulated then far = far + 86400000 end
      local head = per1 and write('>BI7I4d', 160 + outs, now, per1, x1) or write('>BI7', 160 + outs, now)
      failure = redis.pcall('SET', key, head .. out, 'PX', ('%d'):format(far)).err
    end
  end
  if allowed then reply[1] = 1 end
  if not units then
    if failure then return redis.error_reply(failure) end
    if refund then return {changed and 1 or 0} end
    if not singles then return reply end
    reply[1] = fit
    if not rows then return reply end
    rows[1], rows[2] = fit, now
    for i = 3, lowers and fit > 0 and fit < n and last + 2 or 0 do rows[#rows + 1] = reply[i] end -- of the denial
    return rows
  end

  -- Several keys: keep this reply, and prepare the next one.
  if failure then reply[1] = failure end
  for i = 1, last + 2 do all[place + i] = reply[i] or 0 end
  place = place + last + 2
  if k < keys then
    local unit = units[k + 1]
    reply[1], reply[2] = 0, now
    for i = 3, last, 3 do
      local limit = given[i / 3]
      reply[i], reply[i + 1], reply[i + 2] = limit[1], (limit[2] - unit + limit[3]) * limit[4], nil
    end
  end
end
return all
