-- Assembled from the blocks in lua/src by go generate ./lua; change those instead.
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
local read, write, exp, log = struct.unpack, struct.pack, math.exp, math.log
local REST = 0.25 -- a level below it counts as 0

local A, base = ARGV, #KEYS
local op, n, unit, units, looks, counting, singles, rows, levels, others, since -- the verb
local now, lastSlot, reply, given
do
  local valid, most
  -- The verb. One call counts unit units, and the waits are for one call. All calls together count n.
  -- If there are several events, units lists the n of each event.
  --   looks     nothing is written: peek and inspect
  --   counting  units that a limit denies are counted, too
  --   singles   one call is n calls of one unit each, and reply[1] is how many of them are allowed
  --   rows      for each and counteach: the reply to each call
  --   levels    for inspect: the levels of the limits
  --   others    for inspect: the sections that belong to none of them
  --   since     for refund: when the units were counted
  op = A[1]
  n = A[3] == '1' and 1 or A[3] + 0
  valid = n == 1 or n >= 1 and n <= 1e7 and n % 1 == 0
  unit = n
  if op ~= 'allow' then
    counting = op == 'count' or op == 'countsome' or op == 'counteach'
    singles = op == 'some' or op == 'each' or counting and op ~= 'count'
    if op == 'each' or op == 'counteach' then rows, valid = {0, 0}, valid and n <= 4096 end
    if op == 'inspect' then levels, others = {}, {} end
    if op == 'refund' then since = A[#A] + 0 end
    looks = levels or op == 'peek'
    if singles or since or op == 'reset' then unit = 1 end
    valid = valid and (counting or singles or looks or since or op == 'reset')
  end
  most = unit
  if base > 1 then
    units = {n}
    for k = 2, base do
      local more = A[k + 2] == '1' and 1 or A[k + 2] + 0
      if more > most then most = more end
      units[k], valid = more, valid and more >= 1 and more % 1 == 0
    end
    valid = valid and (op == 'allow' or op == 'count')
  end
  now = A[2]
  if now == '' then
    local t = redis.call('TIME')
    now = t[1] * 1000000 + t[2]
  else
    now = now + 0
    valid = valid and now >= 0 and now < 9007199254740992 and now % 1 == 0
  end
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
    local more = 0.001 / per + max * 1e-15
    if more * max > 0.18 then more = 0.18 / max end
    reply[slot] = per
    reply[slot + 1] = units and {max, above, 1 + more} or (max - unit + above) * (1 + more)
  end
  if units then
    given = {} -- the initial value of reply
    for b = 1, lastSlot + 2 do given[b] = reply[b] end
  end
end

local all = units and {} -- the replies to several events
for k = 1, base do
  local key, failure, changed = KEYS[k]
  if units then
    n = units[k]
    unit = n
    for slot = 3, lastSlot, 3 do
      local limit = reply[slot + 1]
      reply[slot + 1] = (limit[1] - unit + limit[2]) * limit[3]
    end
  end
  local allowed, out, outs, far = not levels, '', 0, 0
  do
    -- The record. unread is how many of its sections are still to be read. Below 0, it is no record.
    --   T       when it was written
    --   per, x  the Per of the current section, and its level
    --   pos     where the next section starts
    local v = redis.pcall('GET', key)
    local len, unread, T, per, x, pos
    if v then
      len = #v -- 0 if v is an error
      if len > 19 then
        unread, T, per, x, pos = read('>BI7I4d', v) -- with the first section
        unread = unread - 160
        if unread < 1 or unread > 31 or T > 9007199254740991 then unread = -1 end
      else
        unread, failure = -1, v.err
        if failure then
          if failure:sub(1, 9) == 'WRONGTYPE' then
            failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
          end
        end
      end
    else
      unread = 0
    end
    if op == 'reset' and unread >= 0 then return {redis.call('DEL', key)} end
    if unread > 0 then
      -- The stored levels, decayed to now, minus what is given back. Levels of limits that the caller
      -- does not have are kept, or listed in others.
      local aged, slot, elapsed, sought = (T - now) / 1000, 0
      if aged > 0 then aged, changed = 0, not since end
      if since then
        elapsed = (T > now and T or now) - since
        elapsed = elapsed > 0 and elapsed / 1000 or 0
      end
      while true do
        unread = unread - 1
        if per == 0 then -- 6 bytes of Per follow
          if pos + 5 > len then unread = -1 break end
          per, x, pos = read('>I6d', v, pos - 8)
          if per < 4294967296 or per > 17592186044416 then unread = -1 break end
        end
        if not (x >= REST and x <= 2e7) then unread = -1 break end
        x = x * exp(aged / per)
        slot = slot + 3
        if reply[slot] ~= per then
          slot, sought = 3, true
          while slot <= lastSlot and reply[slot] ~= per do slot = slot + 3 end
        end
        if slot > lastSlot then
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
        else
          if sought and reply[slot + 2] then unread = -1 break end -- a second section with the same Per
          if since and x >= REST then
            local rest = n * exp(-elapsed / per)
            if rest >= REST then x, changed = x - rest, true end
          end
          if x < REST then x = 0 end
          if x > reply[slot + 1] then allowed = false end
          reply[slot + 2] = x
        end
        if unread == 0 or pos > len - 11 then break end
        per, x, pos = read('>I4d', v, pos)
      end
      if pos ~= len + 1 then unread = -1 end -- cut short, or more follows
    end
    if unread ~= 0 and not failure then
      failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
        (v:byte(1) or 0) .. ', or cut short); remove it, or rename the limiter'
    end
  end
  if failure and not units then return redis.error_reply(failure) end

  if allowed then reply[1] = 1 end
  local adds, before, rounds = (allowed or counting) and not since
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
    local fit, again = n
    before = (rows or lastSlot > 3) and {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
    for slot = 3, lastSlot, 3 do
      local most, x, added = reply[slot + 1], reply[slot + 2] or 0
      if before then before[slot + 2] = x end
      x, added = climb(x, most, counting and n or fit)
      if counting and added < n and x < most + 1 then x = most + 1 end
      if added < fit then fit, again = added, not counting and slot > 3 end
      reply[slot + 2] = x
    end
    if again then
      for slot = 3, lastSlot, 3 do reply[slot + 2] = climb(before[slot + 2], reply[slot + 1], fit) end
    end
    reply[1], changed, adds = fit, true, false
    if rows then
      rounds = counting and n or fit
      for slot = 3, lastSlot, 3 do before[slot], before[slot + 1] = reply[slot], reply[slot + 1] end
    end
  end
  local writes, per1, x1 = (adds or changed) and not looks
  -- Each round of the loop builds a reply. The last round also builds the sections of the record.
  -- Each and counteach take one round for each row, and rounds is how many are left. Where it is not
  -- set, there is a single round.
  repeat
    if rounds then
      rounds = rounds > 1 and rounds - 1
      for slot = 3, lastSlot, 3 do
        local most, x = before[slot + 1], before[slot + 2]
        x = x <= most and x + 1 or x < most + 1 and most + 1 or x
        before[slot + 2] = x
        reply[slot], reply[slot + 1], reply[slot + 2] = before[slot], most, x
      end
    end
    for slot = lastSlot, 3, -3 do
      local per, most, x, left = reply[slot], reply[slot + 1], reply[slot + 2] or 0, 0
      local peak = most + unit -- less than 1 above Max
      if adds then
        if x <= most then x = x + unit elseif x < peak then x = peak end
      end
      local max, free = peak - peak % 1, peak - x
      local part = free % 1
      if part < 0.2 then -- without the margin, it may be one less
        local more = 0.001 / per + max * 1e-15
        if more * max > 0.18 then more = 0.18 / max end
        free = (most - x) / (1 + more) + unit
        part = free % 1
      end
      reply[slot] = free < 0 and max or max - free + part
      local wait = 0
      if x > most then
        wait = per * log(x / most)
        wait = wait - wait % 1
        if wait < 1 or x * exp(-wait / per) > most then wait = wait + 1 end
      end
      reply[slot + 1] = wait
      if x > 0 then
        left = per * log(x / REST)
        left = left - left % 1 + 1
        if writes and not rounds then
          if left > far then far = left end
          outs = outs + 1
          if per > 4294967295 then
            out = write('>I4I6d', 0, per, x) .. out
          elseif slot > 3 then
            out = write('>I4d', per, x) .. out
          else -- it is written with the head
            per1, x1 = per, x
          end
        end
      end
      reply[slot + 2] = left
      if levels then levels[slot / 3] = x * 1e8 - x * 1e8 % 1 end
    end
    if rows then
      for i = 3, lastSlot + 2 do rows[#rows + 1] = reply[i] end
    end
  until not rounds
  if levels then
    local state = {0, now}
    for slot = 3, lastSlot, 3 do
      for i = slot, slot + 2 do state[#state + 1] = reply[i] end
      state[#state + 1] = levels[slot / 3]
    end
    for _, number in ipairs(others) do state[#state + 1] = number end
    return state
  end
  if writes and not failure then
    if outs > 31 then
      failure = 'SLIDEGATE key ' .. key .. ' would count for more than 31 limits; wait until some are forgotten, or reset it'
    end
    if outs == 0 then
      local deleted = redis.pcall('DEL', key)
      if deleted ~= 0 and deleted ~= 1 then failure = deleted.err end
    elseif not failure then
      if A[2] ~= '' then
        local grace
        grace = 86400000 -- keep keys for one more day, because the callers' clock may be behind
        far = far + grace
      end
      local head = per1 and write('>BI7I4d', 160 + outs, now, per1, x1) or write('>BI7', 160 + outs, now)
      failure = redis.pcall('SET', key, head .. out, 'PX', ('%d'):format(far)).err
    end
  end
  if not units then
    if failure then return redis.error_reply(failure) end
    if since then return {changed and 1 or 0} end
    if not rows then return reply end
    rows[1], rows[2] = reply[1], now
    if not counting and reply[1] > 0 and reply[1] < n then -- the row of the first denial equals the last one
      for i = 3, lastSlot + 2 do rows[#rows + 1] = reply[i] end
    end
    return rows
  end
  if failure then reply[1] = failure end
  local start = (k - 1) * (lastSlot + 2)
  for b = 1, lastSlot + 2 do
    all[start + b] = reply[b]
    reply[b] = given[b]
  end
end
return all
