-- window.lua decides whether an event may happen under several sliding windows at once,
-- and counts it in all of them or in none. All state of one event is one key.
--
-- KEYS[1]  the key of the event
-- ARGV[1]  what to do:
--            allow      count the units if every limit admits them
--            count      the same, but count them when a limit denies, too
--            peek       what allow would answer
--            some       as n calls of allow with one unit, one after the other at this instant: count as many
--                       of the n units as every limit admits
--            countsome  as n calls of count with one unit
--            each       some, and the reply to each of the n calls
--            counteach  countsome, and the reply to each of the n calls
--            inspect    the state, bucket by bucket
--            refund     give back units that an earlier call counted
--            reset      forget the event, also where its record is cut short
-- ARGV[2]  now, in ms since 1970; empty: the clock of this server
-- ARGV[3]  n, in units: 1 to 2^53, but at most 4096 for each and counteach, and at most any Max for allow,
--          count, peek and inspect
-- ARGV[4 + 3i], [5 + 3i], [6 + 3i]  limit i = 0, 1, ... 30: Per in ms (1 to 2^44), Max in units
--          (1 to 2^53), Resolution in ms (1 to Per). No two limits have the same Per.
-- The last ARGV, for refund alone: the second reply of the call that counted, in ms.
--
-- Reply: a list of integers. Times are in ms; a wait is counted from now.
--   allow, count, peek   admitted (1 or 0), the time at which it was decided, then for each limit:
--                        units used, wait until it would admit the same request once more,
--                        wait until it is as if never used
--   some, countsome      how many of the n units are admitted (the first ones), the time, then for each limit:
--                        units used, wait until it would admit one more unit, wait until it is as if never used
--   each, counteach      how many are admitted, the time, then a row for each of the n calls, in order: the three
--                        integers that each limit would have in its reply. The rows of each end with the first call
--                        that is denied: its row is that of all later ones
--   inspect              0, the time, then for each limit the same three (for the units given),
--                        how many buckets there are and, oldest first, their times and units
--   refund, reset        1 if anything changed, else 0
--
-- Writes: one SET with PX if units are counted; refund one SET or DEL, reset one DEL. If allow, some or each count
-- nothing, they write only to repair a date (NoTimeTravel). Peek and inspect never write.
-- Errors, before anything is written: WRONGTYPE or SLIDEGATE and a sentence that names the key; Lua's
-- own where an argument is no number.
--
-- The record. A bucket is (time of its last event, units); one is forgotten when it is Per old.
--   byte      128 + the number of sections, 1 to 31: the format
--   6 bytes   T, the time of the last event (the clock's, if a bucket is ahead); numbers are big endian
--   then for each limit a section:
--   byte      flags: 0-3 how wide units are (0: every bucket holds 1; 1, 2, 3: 1, 3, 7 bytes),
--             + 4 x (0: Resolution 1; 1: Per/60, rounded up; 2: in a field), + 16: own last time,
--             + 32: wide head
--   1 byte    how many buckets are closed: all but the last (2 bytes in a wide head)
--   4 bytes   Per (6 in a wide head)
--   6 bytes   time of its last event, if not T (flag 16)
--   6 bytes   Resolution under which its last bucket was opened (in a field)
--   2 x units of all its buckets, and of the last one (unless every bucket holds 1)
--   closed x  newest first: time of the bucket modulo 256^w, where w is 2, 3, 4 or 6 bytes, the
--             least that holds Per; and its units (unless every bucket holds 1)


-- encode writes a section whose closed buckets are body, in times of w bytes and units of u, and widens units that need it.
-- now is the T of the record.
local function encode(now, per, closed, last, res, total, open, body, w, u)
  local pack, fits = struct.pack, total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
  if fits > u then
    local wider = {}
    for i = 0, closed - 1 do
      local at = i * (w + u) + 1
      local units = u == 0 and 1 or struct.unpack(u == 1 and '>I1' or '>I3', body, at + w)
      wider[i + 1] = string.sub(body, at, at + w - 1) .. pack('>I' .. fits, units)
    end
    body, u = table.concat(wider), fits
  end
  local flags, fields = u > 1 and (u + 5) / 4 or u, ''
  if last ~= now then flags, fields = flags + 16, pack('>I6', last) end
  if res == math.ceil(per / 60) then
    flags = flags + 4
  elseif res > 1 then
    flags, fields = flags + 8, fields .. pack('>I6', res)
  end
  if u == 1 then
    fields = fields .. pack('>BB', total, open)
  elseif u > 1 then
    fields = fields .. (u == 3 and pack('>I3I3', total, open) or pack('>I7I7', total, open))
  end
  if closed < 256 and per < 4294967296 then
    return pack('>BBI4', flags, closed, per) .. fields .. body
  end
  return pack('>BI2I6', flags + 32, closed, per) .. fields .. body
end

-- waits adds to rows, for counteach, how long the limit at a denies one more unit after each of n: until as many units as are
-- too many by then are forgotten, of the total that there was and then of the n. due is when these are; at open, the last bucket is.
local function waits(rows, a, need, total, read, v, at, fin, w, u, pair, wrap, last, open, due, per, now, n)
  local all, forgotten, t = {}, 0, 0
  for k = 1, n do
    need = need + 1
    while total > 0 and forgotten < need and fin > at do
      local b, c = read(pair, v, fin - w - u)
      forgotten, fin, t = forgotten + (u > 0 and c or 1), fin - w - u, last - (last - b) % wrap
    end
    if need > total then
      all[k] = due - now
    elseif need > 0 then
      all[k] = (forgotten < need and open or t) + per - now
    else
      all[k] = 0
    end
  end
  rows[a] = all
end

local struct, redis, sub, A = struct, redis, string.sub, ARGV
local read, write = struct.unpack, struct.pack
local FORMAT, MOST, DAY = 128, 31, 86400000
local key, op, now, n, count = KEYS[1], A[1], A[2], A[3] == '1' and 1 or A[3] + 0, #A
local simulated, refund = now ~= '', op == 'refund'
local valid = n == 1 or n >= 1 and n <= 9007199254740992 and n % 1 == 0
if simulated then
  now = now + 0
  valid = valid and now >= 0 and now < 140737488355328 and now % 1 == 0
else
  local t = redis.call('TIME')
  local us = t[2] + 0
  now = t[1] * 1000 + (us - us % 1000) / 1000
end
local limits = (count - (refund and 4 or 3)) / 3

-- unit is what the waits are for, n how many are counted. For some and each, n is lowered to what every limit admits; for
-- countsome and counteach, fit is.
local counting, unit, verb = false, n, op == 'allow'
local lowers, fit, rows, single, asked
if not verb then
  lowers, rows = op == 'some' or op == 'each', op == 'counteach' and {}
  counting, single = op == 'count', lowers or op == 'countsome' or rows
  verb = counting or single or refund or op == 'peek' or op == 'inspect' or op == 'reset'
  if single then
    counting, unit, fit, asked = not lowers, 1, n, n
    valid = valid and (n <= 4096 or op == 'some' or op == 'countsome')
  end
end
if not (verb and valid and limits % 1 == 0 and limits >= 1 and limits <= MOST) then
  return redis.error_reply('SLIDEGATE key ' .. key .. ': the arguments are not as the head of window.lua asks')
end

local v = redis.pcall('GET', key)
local len, first, T, foreign, head, closed, per, at = 0, FORMAT, 0, false
if v then
  len = #v -- 0 if v is an error
  if len > 12 then
    first, T, head, at = read('>BI6I6', v) -- with the first head
    foreign = first <= FORMAT or first > FORMAT + MOST
  elseif v.err then
    if v.err:sub(1, 9) ~= 'WRONGTYPE' then return v end
    return redis.error_reply('WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter')
  else
    first, foreign = v:byte() or 0, true
  end
end
local sections = first - FORMAT
if op == 'reset' and not foreign then return {redis.call('DEL', key)} end

-- One turn for each stored section, then one for each limit that has none yet. reply holds what is true once the units are
-- counted; the first limit that denies puts it back for those before it. out is the new record, kept the one to write if
-- a denial must repair a date. Since T is the clock's time at the last write, a section has a time of its own only if it is
-- carried along, or ahead of the clock.
local admitted, changed, again = op ~= 'inspect', false, false
local adds = admitted
local newT, since = refund and T or now, refund and A[count] + 0
local reply, out, kept, px, far, keptFar, lasts, lists = nil, '', '', nil, 0, 0, nil, nil
if limits == 1 then
  reply = {1, now, nil, nil, nil}
else
  reply = {1, now, nil, nil, nil, nil, nil, nil, nil, nil, nil}
end
-- a is where a limit has its place in reply, and before its place in ARGV: 3, 6, 9 and so on; 0 is none of the caller's.
local pos, a, most, left, seen, outs, keeps, twice, earliest = 8, 0, 3 * limits, refund and 0 or limits, 0, limits, 0, false, 281474976710656
local sought = false -- whether a section was not that of the next limit; else none can come twice
if foreign then pos, left = len + 1, 0 end
local tail = len - 5 -- where the last head may begin
local dated = simulated -- PX is not the Per of a limit, since the clock is not this server's, or stepped back
while pos <= len or left > 0 or again do
  if pos > len and left == 0 then -- all limits are decided, but some for more units than those after them admit
    pos, a, left, seen, outs, keeps, sought, again = 8, 0, limits, 0, limits, 0, false, false
    reply, lasts, out, kept, px, far, keptFar = {1, now}, nil, '', '', nil, 0, 0
    admitted, adds = n > 0, n > 0
    if v then head, at = read('>I6', v, 8) end
  end
  local last, total, open, w, pair, wrap, max, width
  local res, u, form = 1, 0, 0 -- form is the flags, as they stand in the head, if the section can be written the short way
  a = a + 3
  if pos <= len then
    -- Read the section.
    if pos > 8 then head, at = read('>I6', v, pos) end -- flags, closed and Per as one number
    local flags = 0
    per = head % 4294967296
    closed = (head - per) / 4294967296
    if closed > 255 then
      flags = (closed - closed % 256) / 256
      closed = closed % 256
      if flags >= 32 then
        if pos + 8 > len then
          foreign = true
          break
        end
        flags, closed, per, at = read('>BI2I6', v, pos)
        flags = flags - 32
      end
    end
    if per < 65536 then
      w, pair, wrap = 2, '>I2', 65536
      foreign = per == 0
    elseif per < 16777216 then
      w, pair, wrap = 3, '>I3', 16777216
    elseif per < 4294967296 then
      w, pair, wrap = 4, '>I4', 4294967296
    else
      w, pair, wrap, form = 6, '>I6', 281474976710656, nil
      foreign = per > 17592186044416
    end
    last = T
    total = closed + 1
    open = 1
    if flags == 0 then
      pos = at + closed * w
    else
      u = flags % 4
      local r = (flags - u) / 4 % 4
      form = form and r < 2 and (4 * r + u) * 1099511627776
      foreign = foreign or flags > 31 or r == 3
      if u > 1 then u = u * 4 - 5 end
      pos = at + (flags >= 16 and 6 or 0) + (r == 2 and 6 or 0) + u + u + closed * (w + u)
      if pos <= len + 1 then
        if flags >= 16 then
          last, at = read('>I6', v, at)
          foreign = foreign or last > T + per
        end
        if r == 1 then res = (per + 59 - (per + 59) % 60) / 60 elseif r == 2 then res, at = read('>I6', v, at) end
        if u == 1 then
          total, open, at = read('>BB', v, at)
          pair = w == 4 and '>I4B' or w == 3 and '>I3B' or w == 2 and '>I2B' or '>I6B'
        elseif u > 1 then
          total, open, at = read(u == 3 and '>I3I3' or '>I7I7', v, at)
          pair = pair .. (u == 3 and 'I3' or 'I7')
        end
      end
    end
    seen = seen + 1
    if foreign or pos > tail and pos ~= len + 1 then
      foreign = true
      break
    end
    if a > most or A[a + 1] + 0 ~= per then
      a, sought = most, true
      while a > 0 and A[a + 1] + 0 ~= per do a = a - 3 end
    end
    if sought and reply[a] then -- no writer stores two sections of one Per
      foreign = true
      break
    end
  else
    while a > most or reply[a] do a = a % most + 3 end
    per = A[a + 1] + 0
    closed = nil
    for b = 3, most, 3 do twice = twice or b ~= a and A[b + 1] + 0 == per end
    if twice then break end
    last = now - per -- long enough ago
  end
  local fin, date = pos, now -- date is when this section takes the attempt to happen

  -- A clock that stepped back (NoTimeTravel): merge what is dated more than Per ahead into one bucket at now + Per.
  if last > now then
    local ahead = now + per
    if last > ahead and not refund then
      while closed > 0 do
        local b, c = read(pair, v, at)
        if last - (last - b) % wrap < ahead then break end
        open, closed, at = open + (u > 0 and c or 1), closed - 1, at + w + u
      end
      last, changed = ahead, true
    end
    date, dated, form = last, true, nil
  end

  if a > 0 then
    max = A[a + 2] + 0
    width = A[a + 3]
    width = width == '1' and 1 or width + 0
    if not ((unit <= max or refund and max > 0) and max <= 9007199254740992 and max % 1 == 0 and
      (width == 1 or width >= 1 and width <= per and width % 1 == 0) and
      (closed or per >= 1 and per % 1 == 0 and per <= 17592186044416)) then
      return redis.error_reply(string.format('SLIDEGATE key %s: limit %d or the units are not as the head of window.lua asks', key, a / 3))
    end
  end

  if a == 0 then
    -- Of no limit of the caller: carry it along until it is forgotten.
    if last + per > now then
      local section = encode(newT, per, closed, last, res, total, open, sub(v, at, fin - 1), w, u)
      out, kept, outs, keeps = out .. section, kept .. section, outs + 1, keeps + 1
      if last + per > far then far, px = last + per, nil end
      if last + per > keptFar then keptFar = last + per end
    end
  elseif refund then
    local body = sub(v, at, fin - 1)
    if last >= since and since + per > date then
      -- Find the first bucket not before since, and take the units from it.
      local p, t, units = fin, last, open -- it ends at p; the open one has no place in the body
      while p > at do
        local b, c = read(pair, v, p - w - u)
        t = last - (last - b) % wrap
        if t >= since then
          units = u > 0 and c or 1
          break
        end
        p = p - w - u
      end
      local newer, older = sub(v, at, p - w - u - 1), sub(v, p, fin - 1)
      changed = true
      if units > n then
        total = total - n
        if p == at then open = open - n else body = newer .. write(pair, t % wrap, units - n) .. older end
      else
        total = total - units
        if p > at then
          body = newer .. older
        elseif closed > 0 then
          -- The bucket before it is closed: Resolution 1 lets nothing join it.
          local b, c = read(pair, v, at)
          last, open, res, body = last - (last - b) % wrap, u > 0 and c or 1, 1, sub(v, at + w + u, fin - 1)
        end
        closed = closed - 1
      end
    end
    if total > 0 and closed >= 0 and last + per > now then
      kept, keeps = kept .. encode(newT, per, closed, last, res, total, open, body, w, u), keeps + 1
      if last + per > keptFar then keptFar = last + per end
    end
    reply[a] = 0
  else
    -- Forget.
    local due = date + per
    if last + per <= date then
      last = date
      res = width
      form = per < 4294967296 and (width == 1 and 0 or width == (per + 59 - (per + 59) % 60) / 60 and 4398046511104)
      total = 0
      closed = 0
      open = 0
      u = 0
    else
      while closed > 0 do
        local b, c = read(pair, v, fin - w - u)
        if last - (last - b) % wrap + per > date then break end
        total, closed, fin = total - (u > 0 and c or 1), closed - 1, fin - w - u
      end
      if total < open then -- no writer counts less in all than in the last bucket
        foreign = true
        break
      end
    end
    local joins = last == date or res > 1 and last - last % res == date - date % res -- a new event joins the last bucket

    -- Decide. need is how many units must be forgotten until the request fits; once counted, the same request once more.
    local need = total - (max - unit)
    if single and need + fit > 1 then
      fit = need < 1 and 1 - need or 0
      if lowers and (fit > 0 or again) then again, n = again or left < limits, fit end
    end
    if need > 0 and not again then
      for b = 3, admitted and not counting and most or 0, 3 do
        if reply[b] then
          local used = reply[b] - n
          reply[b] = used
          reply[b + 1] = 0
          reply[b + 2] = used > 0 and (lasts and lasts[b] or T) + A[b + 1] - now or 0
        end
      end
      admitted, adds = false, counting
    end
    if rows then waits(rows, a, need, total, read, v, at, fin, w, u, pair, wrap, last, adds and joins and date or last, due, per, now, n) end
    if adds then need = need + n end
    local wait = 0
    if need > total then
      wait = due - now
    elseif need > 0 then
      local t, p = adds and joins and date or last, fin
      if u == 0 and need <= closed then
        t = last - (last - read(pair, v, fin - need * w)) % wrap
      end
      while u > 0 and need > 0 and p > at do
        local b, c = read(pair, v, p - w - u)
        need, p = need - c, p - w - u
        if need <= 0 then t = last - (last - b) % wrap end
      end
      wait = t + per - now
    end
    if date < earliest then earliest = date end
    left = left - 1
    reply[a + 1] = wait
    if adds then
      reply[a] = total + n
      reply[a + 2] = due - now
    else
      reply[a] = total
      reply[a + 2] = total > 0 and last + per - now or 0
    end
    if last ~= T and total > 0 then
      lasts = lasts or {}
      lasts[a] = last
    end

    if T > now and total > 0 then
      kept, keeps = kept .. encode(newT, per, closed, last, res, total, open, sub(v, at, fin - 1), w, u), keeps + 1
      if last + per > keptFar then keptFar = last + per end
    end
    if op == 'inspect' then
      local list = {}
      while total > 0 and fin > at do
        fin = fin - w - u
        local b, c = read(pair, v, fin)
        list[#list + 1], list[#list + 2] = last - (last - b) % wrap, u > 0 and c or 1
      end
      if total > 0 then list[#list + 1], list[#list + 2] = last, open end
      lists = lists or {}
      lists[a] = list
    elseif adds and op ~= 'peek' then
      -- Count.
      if not joins then closed = closed + 1 end
      local plain = form and closed < 256 and (joins or res == width)
      if plain and u == 0 and n == 1 and total == closed then
        if closed == 0 then
          out = out .. write('>I6', form + per)
        else
          out = out .. write(w == 3 and '>I6I3' or w == 4 and '>I6I4' or '>I6I2', form + closed * 4294967296 + per, last % wrap) .. sub(v, at, fin - 1)
        end
      elseif plain and u == 1 and total + n < 256 then
        if joins then
          out = out .. write('>I6BB', form + closed * 4294967296 + per, total + n, open + n) .. sub(v, at, fin - 1)
        else
          out = out .. write(w == 3 and '>I6BBI3B' or w == 4 and '>I6BBI4B' or '>I6BBI2B', form + closed * 4294967296 + per,
            total + n, n, last % wrap, open) .. sub(v, at, fin - 1)
        end
      else
        if total > 9007199254740992 - n or closed > 65535 then
          return redis.error_reply('SLIDEGATE key ' .. key .. ' would count more than 2^53 units or 65,536 buckets; ' ..
            'wait until some are forgotten, or reset it')
        end
        local body = closed > 0 and sub(v, at, fin - 1) or ''
        if joins then
          open = open + n
        else
          body = write(pair, last % wrap, open) .. body -- the units are ignored where every bucket holds 1
          open, res = n, width
        end
        out = out .. encode(newT, per, closed, date, res, total + n, open, body, w, u)
      end
      if due > far then
        far = due
        px = A[a + 1]
      end
    end
  end
end

if twice then
  return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
end
if foreign or seen ~= sections then
  return redis.error_reply('SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' .. first ..
    ', or cut short); remove it, or rename the limiter')
end

if op == 'inspect' then
  local all = {0, earliest}
  for b = 3, most, 3 do
    local list = lists[b]
    for k = b, b + 2 do all[#all + 1] = reply[k] end
    all[#all + 1] = #list / 2
    for k = 1, #list do all[#all + 1] = list[k] end
  end
  return all
end

local counts = admitted and not refund or counting
if (counts or changed) and op ~= 'peek' then
  if not counts then out, outs, far, px = kept, keeps, keptFar, nil end
  if outs > MOST then
    return redis.error_reply('SLIDEGATE key ' .. key .. ' would count for more than 31 limits; wait until some are forgotten, or reset it')
  end
  if far == 0 then
    redis.call('DEL', key)
  else
    if dated or not px then px = string.format('%.0f', far - now + (simulated and DAY or 0)) end
    redis.call('SET', key, write('>BI6', FORMAT + outs, newT) .. out, 'PX', px)
  end
end
if refund then return {changed and 1 or 0} end
if single then reply[1] = fit elseif not admitted then reply[1] = 0 end
if earliest > now then reply[2] = earliest end
if op == 'each' then
  -- What every limit admits fills none before the last of it, so what is before it waits for nothing.
  local all = {fit, reply[2]}
  for k = fit > 1 and 1 or fit, fit + (fit > 0 and fit < asked and 1 or 0) do
    for b = 3, most, 3 do
      all[#all + 1] = k < fit and reply[b] - fit + k or reply[b]
      all[#all + 1] = k < fit and 0 or reply[b + 1]
      all[#all + 1] = reply[b + 2]
    end
  end
  return all
end
if rows then
  local all = {fit, reply[2]}
  for k = 1, n do
    for b = 3, most, 3 do
      all[#all + 1] = reply[b] - n + k
      all[#all + 1] = rows[b][k]
      all[#all + 1] = reply[b + 2]
    end
  end
  return all
end
return reply
