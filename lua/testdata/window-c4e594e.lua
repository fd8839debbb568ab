-- This is window.lua of commit c4e594e, unchanged below this line. TestBehavesAsBefore compares the scripts of today with it.
-- window.lua decides whether an event is allowed under several sliding windows at once, and counts
-- it in all of them or in none. The whole state of an event is in one key. One call can decide on
-- several events, either each as in a separate call, or jointly: all are counted, or none.
--
-- KEYS[k]  the key of event k = 1, 2, ... K: Name:{tag}:w. The tag of an event of at most 128 bytes
--          is the event itself, with %XX (upper case) for %, {, }, a leading ~, space and all bytes
--          that are not printable ASCII. The tag of a longer event is ~ and its SHA-256. With a
--          secret, the tag of every event is ~ and its HMAC-SHA256. Both are in base64url without
--          padding. Examples are in testdata/vectors.json
-- ARGV[1]  what to do:
--            allow      count the units if every limit allows them. Only allow, count, joint and
--                       undo take more than one key
--            count      the same, but count the units even if a limit denies
--            peek       reply as allow would, but count nothing
--            some       count as many of the n units as every limit allows, like n consecutive calls
--                       of allow with one unit, all at the same time
--            countsome  count the n units like n calls of count with one unit, including units that
--                       a limit denies
--            each       the same as some, but reply to each of the n calls
--            counteach  the same as countsome, but reply to each of the n calls
--            inspect    reply with the state, bucket by bucket
--            refund     give back units that an earlier call counted
--            reset      forget the event, even if its record is truncated
--            joint      decide on one or more groups of events, each event under its own limits. If
--                       all limits of all events in a group allow the units, count all of the units,
--                       otherwise none. No key may occur twice
--            undo       refund or reset each event of one or more groups: n is the number of units to
--                       refund, or 0 for a reset
-- ARGV[2]  now, in ms since 1970, or empty to use the clock of this server
-- ARGV[2 + k]  n for event k, in units: 1 to 2^53. For each and counteach it is at most 4096; for
--          allow, count, peek and inspect it is at most the smallest Max
-- ARGV[3 + K + 3i], [4 + K + 3i], [5 + K + 3i]  limit i = 0, 1, ... 30: Per in ms (1 to 2^44), Max
--          in units (1 to 2^53), Resolution in ms (1 to Per). No two limits have the same Per.
--          Inspect needs no limit
-- The last ARGV, only for refund: the second integer in the reply of the call that counted, in ms
-- For joint, ARGV[3 + K] is instead G, the number of events in a group. K is a multiple of G. Events 1 to
-- G are the first group, the next G events the second, and so on. For each position in a group, ARGV
-- continues with the number of limits (1 to 31) and the three integers of each limit. Undo is the same,
-- except that each n is followed by the last argument of a refund (any number for a reset), and that a
-- position can have no limits
--
-- Reply: a list of integers. Times are in ms; waits are from now.
--   allow, count, peek   allowed (1 or 0), the time of the decision, and for each limit: the units
--                        used, the wait until it would allow the same request once more, and the
--                        wait until it is as if never used
--   some, countsome      how many of the n units are allowed (the first ones), the time, and for
--                        each limit: the units used, the wait until it would allow one more unit,
--                        and the wait until it is as if never used
--   each, counteach      how many of the n calls are allowed, the time, and a row for each of the n
--                        calls, in order: the three integers of each limit in the reply to that
--                        call. For the verb each, the row of the first denial is the last row, and
--                        also applies to all later calls
--   inspect              0, the time, and for each limit: the same three integers (for the given
--                        units), the number of buckets and, oldest first, the time and units of
--                        each bucket. Then for each other section of the record: its Per, the units
--                        used, the wait until it is as if never used, and its buckets as above
--   refund, reset        1 if anything changed, otherwise 0. Undo replies this for each event
--   joint                for each event, the reply of allow: whether its own limits allow it, and so on. A
--                        group is counted if all its events are allowed. In a group that is not counted,
--                        the rows of allowed events do not include their units
-- For several keys, these replies follow one another. If an event fails, its first integer is replaced by
-- a string: the error that a call for this event alone would return. Its other integers are meaningless.
-- The other events are still decided, but in a joint call, no event of the same group is counted.
--
-- Writes: one SET with PX for each event whose units are counted. Refund writes one SET or DEL,
-- reset one DEL. If allow, some, each or joint count nothing, they write only to repair a timestamp
-- (see NoTimeTravel below). Joint writes nothing for a group before all events of the group are
-- decided. Peek and inspect never write.
-- Errors, before anything is written: WRONGTYPE or SLIDEGATE, and a sentence that names the key. If
-- arguments are invalid, it names the first key. If an argument is not a number, the error is Lua's.
--
-- The record. A bucket is (time of its last event, units). It is forgotten when it is Per old.
-- Numbers are big endian.
--   byte      128 + the number of sections, 1 to 31: the format
--   6 bytes   T, the time of the last event (of the clock, if a bucket is later than the clock)
--   then for each limit a section:
--   byte      flags: 0-3 the width of units (0: every bucket holds 1; 1, 2, 3: 1, 3, 7 bytes),
--             + 4 x (0: Resolution 1; 1: Per/60, rounded up; 2: in a field), + 16: own last time,
--             + 32: wide head
--   1 byte    the number of closed buckets: all except the last one (2 bytes in a wide head)
--   4 bytes   Per (6 in a wide head)
--   6 bytes   time of the section's last event, if not T (flag 16)
--   6 bytes   Resolution under which the last bucket was opened (if in a field)
--   2 x units of all buckets, and of the last bucket (unless every bucket holds 1)
--   closed x  newest first: time of the bucket modulo 256^w, where w is 2, 3, 4 or 6 bytes, the
--             smallest that can hold Per; and its units (unless every bucket holds 1)

-- The loop reads a section of the record into these locals. Other code in this file uses the same
-- names:
--   per, closed, last, res  Per, how many buckets are closed, the time of the last event, and the
--                           Resolution under which the last bucket was opened
--   total, open             the units of all buckets, and those of the last bucket, which is open
--   at, fin                 where the closed buckets start in v, and where they end (exclusive)
--   w, u, pair, wrap        how many bytes the time and the units of a closed bucket take, the
--                           format that reads both, and 256^w
--   slot                    the index in reply of the three integers of the limit with this Per: 3,
--                           6, 9 and so on. In ARGV, the limit starts K places later. 0 if the
--                           caller has no such limit
--   date                    the time of the attempt in this section: now, or last if that is later

-- encode returns a section whose closed buckets are body. If units need more than u bytes, encode
-- widens them. recordT is the T of the record.
local function encode(recordT, per, closed, last, res, total, open, body, w, u)
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
  if last ~= recordT then flags, fields = flags + 16, pack('>I6', last) end
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

local redis, read, write, A, keys = redis, struct.unpack, struct.pack, ARGV, #KEYS
local base = keys -- the integers of a limit with a slot in reply start at A[base + slot]
local op, now, n, count = A[1], A[2], A[3] == '1' and 1 or A[3] + 0, #A

-- The verb. One call counts unit units, and the waits are for one call. All calls together count n.
-- If there are several events, units lists the n of each event.
local valid, unit, most, units = n == 1 or n >= 1 and n <= 9007199254740992 and n % 1 == 0, n
local tries, writes = true, true -- tries: reply includes the units, unless a limit denies
local counting, looks, inspect, refund -- counting: denied units count too; looks: peek or inspect
local singles, lowers, fit -- singles: one call is n calls, of which fit are allowed; lowers: only these count
local lists, since, simulated -- lists: collect the sections, because the loop alone is not enough
local joint, undo, own -- joint: all events are counted, or none; own: each event has its own limits
local stride = 1 -- how many arguments each n takes
if op ~= 'allow' then
  joint, undo = op == 'joint', op == 'undo'
  own = joint or undo
  if op == 'some' or op == 'each' then
    singles, lowers = true, true
  else
    counting = op == 'count' or op == 'countsome' or op == 'counteach'
    singles = counting and op ~= 'count'
    inspect, refund = op == 'inspect', op == 'refund' or op == 'reset' or undo
    looks = inspect or op == 'peek'
    valid = (valid or undo and n == 0) and (counting or looks or refund or joint)
    if refund then unit = 1 end
    if op == 'refund' then since, count = A[count] + 0, count - 1 end
    if undo then stride = 2 end
    if looks or refund then writes = false end
    if inspect or refund then tries = false end
    lists = inspect or refund or op == 'counteach'
  end
  if singles then
    unit, fit = 1, n
    valid = valid and (op == 'some' or n <= 4096 or op == 'countsome')
  end
end
most = unit
if keys > 1 or own then
  units, valid = {n}, valid and (op == 'allow' or op == 'count' or own)
  for k = 2, keys do
    n = A[stride * (k - 1) + 3]
    n = n == '1' and 1 or n + 0
    if n > most then most = n end
    units[k], valid = n, valid and (n >= 1 or undo and n == 0) and n % 1 == 0
  end
  valid = valid and most <= 9007199254740992
  for k = 1, undo and keys or 0 do since = A[2 * k + 2] + 0 end -- fail before anything is written
end

if now == '' then
  local t = redis.call('TIME')
  local us = t[2] + 0
  now = t[1] * 1000 + (us - us % 1000) / 1000
else
  now, simulated = now + 0, true
  valid = valid and now >= 0 and now < 140737488355328 and now % 1 == 0
end

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

-- Decide on each event. The inner loop decides on one section of the event's record at a time, and
-- then on each limit that has no section. It writes to reply the state after the units are counted.
-- The first limit that denies corrects this for the limits before it. For some and each, a limit may
-- allow fewer units than the limits before it have counted. The loop then starts over, with as many
-- units as every limit allows.
--   failure                why the event fails
--   out, outs, expiry, px  the new sections, their number, the time when the last of their units
--                          is forgotten, and the PX for that time, if it is the Per of a limit
--   undecided, seen        how many limits are still undecided, and how many sections were read
--   ahead, earliest        how many limits have a date later than now, and the earliest such date
--   short                  the flags of the section, if the fast writers can write it
--   joins                  whether new units join the last bucket
--   lasts                  last of each slot where it is not T
--   fits, broken           whether all events of a group are allowed, and whether one fails
-- A section needs its own last time only if it is copied unchanged or later than the clock, because T
-- is the clock time of the last write.
local all, place = units and {}, 0 -- for several events: the replies
local fits, broken = true, false
local full = ' would count for more than 31 limits; wait until some are forgotten, or reset it'
-- If callers pass the time, keep keys for one more day, because the callers' clock may be behind.
local grace = simulated and 86400000 or 0
for k = 1, keys do
  if own then
    local p = places[(k - 1) % size + 1]
    base, limits, lastSlot, reply, given = p.base, p.limits, p.lastSlot, p.reply, p.given
  end
  local key, n, unit = KEYS[k], n, unit
  if units then n, unit = units[k], units[k] end
  if undo then since = A[2 * k + 2] + 0 end
  local allowed, adds, counts, sections = tries, tries, writes, lists and {}

  -- The record.
  local v = redis.pcall('GET', key)
  local len, first, T, foreign, failure, flags, closed, per, at = 0, 128, 0
  if v then
    len = #v -- 0 if v is an error
    if len > 12 then
      first, T, flags, closed, per, at = read('>BI6BBI4', v) -- with the head of the first section
      if first < 129 or first > 159 then foreign = true end
    elseif v.err then
      failure, foreign = v.err, true
      if failure:sub(1, 9) == 'WRONGTYPE' then
        failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
      end
    else
      first, foreign = v:byte() or 0, true
    end
  end
  local newT, tail = refund and T or now, len - 5 -- tail: where the last head may start
  local pos, slot, undecided, seen, ahead, earliest = 8, 0, limits, 0, 0, 281474976710656
  local out, outs, expiry, px, again, changed, lasts = '', limits, 0
  local last, total, open, w, pair, wrap, joins
  local dated = simulated -- PX is not the Per of a limit
  if refund then undecided = 0 end
  if T > now then sections = sections or {} end -- a denial may have to repair a timestamp
  if foreign then
    pos, undecided = len + 1, 0
  elseif op == 'reset' or undo and n == 0 then -- as if no section were left
    pos, first, changed = len + 1, 128, v and true
  end
  while pos <= len or undecided > 0 or again do
    if again and pos > len and undecided == 0 then
      -- Start over, with as many units as every limit allows.
      pos, slot, undecided, seen, ahead, out, outs, expiry = 8, 0, limits, 0, 0, '', limits, 0
      again, sections, allowed, adds, counts = false, sections and {}, true, true, true
      for b = 3, lastSlot, 3 do
        reply[b], reply[b + 1], reply[b + 2] = -A[b + base], A[b + base + 1] + 0, A[b + base + 2] + 0
      end
      if v then flags, closed, per, at = read('>BBI4', v, 8) end
    end
    slot = slot + 3
    local res, u, short = 1, 0, 0
    if pos <= len then
      -- Read the section.
      if pos > 8 then flags, closed, per, at = read('>BBI4', v, pos) end
      if flags >= 32 and pos + 8 <= len then -- a wide head
        flags, closed, per, at = read('>BI2I6', v, pos)
        flags = flags - 32
      end
      if per < 65536 then
        w, pair, wrap = 2, '>I2', 65536
        if per == 0 then foreign = true end
      elseif per < 16777216 then
        w, pair, wrap = 3, '>I3', 16777216
      elseif per < 4294967296 then
        w, pair, wrap = 4, '>I4', 4294967296
      else
        w, pair, wrap, short = 6, '>I6', 281474976710656, nil
        if per > 17592186044416 then foreign = true end
      end
      last = T
      total = closed + 1
      open = 1
      if flags == 0 then
        pos = at + closed * w
      else
        u = flags % 4
        local r = (flags - u) / 4 % 4
        short = short and r < 2 and flags % 16
        if flags > 31 or r == 3 then foreign = true end
        if u > 1 then u = u * 4 - 5 end
        pos = at + u + u + closed * (w + u) + (r == 2 and 6 or 0)
        if flags >= 16 then pos = pos + 6 end
        if pos <= len + 1 then
          if flags >= 16 then
            last, at = read('>I6', v, at)
            if last > T + per then foreign = true end
          end
          if r == 1 then res = (per + 59 - (per + 59) % 60) / 60 elseif r == 2 then res, at = read('>I6', v, at) end
          if u == 1 then
            total, open, at = read('>BB', v, at)
            pair = w == 4 and '>I4B' or w == 3 and '>I3B' or w == 2 and '>I2B' or '>I6B'
          elseif u > 1 then
            total, open, at = read(u == 3 and '>I3I3' or '>I7I7', v, at)
            pair = pair .. (u == 3 and 'I3' or 'I7')
            if total > 9007199254740992 then foreign = true end
          end
        end
      end
      seen = seen + 1
      if slot > lastSlot or reply[slot] ~= -per then
        slot = lastSlot
        while slot > 0 and reply[slot] ~= -per do slot = slot - 3 end
        for b = 3, slot == 0 and lastSlot or 0, 3 do
          foreign = foreign or A[b + base] + 0 == per -- a second section with the same Per
        end
      end
      if foreign or pos > tail and pos ~= len + 1 then foreign = true break end
    else
      while slot > lastSlot or reply[slot] >= 0 do slot = slot % lastSlot + 3 end
      per = -reply[slot]
      last = now - per -- old enough to be forgotten
    end

    -- NoTimeTravel: if the clock stepped back, merge everything later than now + Per into one bucket
    -- at now + Per.
    local fin, date = pos, now
    if last > now then
      if last > now + per and not refund then
        while closed > 0 do
          local b, c = read(pair, v, at)
          if last - (last - b) % wrap < now + per then break end
          open, closed, at = open + (u > 0 and c or 1), closed - 1, at + w + u
        end
        last, changed = now + per, true
      end
      date, dated, short = last, true, nil
      if slot > 0 or limits == 0 then
        ahead = ahead + 1
        if date < earliest then earliest = date end
      end
    end

    -- Forget.
    if slot > 0 and not refund or inspect then
      if last + per <= date then
        local width = reply[slot + 2]
        last = date; res = width
        total = 0; closed = 0; open = 0; u = 0
        short = per < 4294967296 and (width == 1 and 0 or width == (per + 59 - (per + 59) % 60) / 60 and 4)
      else
        while closed > 0 do
          local b, c = read(pair, v, fin - w - u)
          if last - (last - b) % wrap + per > date then break end
          total, closed, fin = total - (u > 0 and c or 1), closed - 1, fin - w - u
        end
        if total < open then foreign = true break end -- all buckets together hold at least as much as one
      end
    end
    if sections then
      sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
        open = open, at = at, fin = fin, w = w, u = u, pair = pair, wrap = wrap, date = date}
      if refund then reply[slot], slot = 0, 0 end
    end

    if slot == 0 then
      -- Keep the sections of callers with other limits until they are forgotten. A refund does this later.
      if last + per > now and not refund then
        out, outs = out .. encode(newT, per, closed, last, res, total, open, v:sub(at, fin - 1), w, u), outs + 1
        if last + per > expiry then expiry, px = last + per, nil end
      end
    else
      -- Decide. need is how many units must be forgotten before this call fits or, if it is counted,
      -- before the next call fits.
      local due, need, wait = date + per, total - (reply[slot + 1] - unit), 0
      if singles and need + fit > 1 then
        fit = need < 1 and 1 - need or 0
        if lowers and fit > 0 then again, n = again or undecided < limits, fit end
      end
      if need > 0 then
        if allowed and undecided < limits and not counting then
          for b = 3, lastSlot, 3 do
            if reply[b] >= 0 then
              reply[b], reply[b + 1] = reply[b] - n, 0
              reply[b + 2] = reply[b] > 0 and (lasts and lasts[b] or T) + A[b + base] - now or 0
            end
          end
        end
        allowed, adds, counts = false, counting, counting
      end
      if adds then
        joins = last == date or res > 1 and last - last % res == date - date % res
        need = need + n
      end
      if need > total then
        wait = due - now
      elseif need > 0 then
        local t, p = adds and joins and date or last, fin
        if u == 0 and need <= closed then t = last - (last - read(pair, v, fin - need * w)) % wrap end
        while u > 0 and need > 0 and p > at do
          local b, c = read(pair, v, p - w - u)
          need, p = need - c, p - w - u
          if need <= 0 then t = last - (last - b) % wrap end
        end
        wait = t + per - now
        if wait < 1 then foreign = true break end -- buckets are in order, so this one is not forgotten yet
      end
      if last ~= T and total > 0 then
        lasts = lasts or {}
        lasts[slot] = last
      end
      if counts then
        if not joins then closed = closed + 1 end
        local plain = short and closed < 256 and (joins or res == reply[slot + 2])
        if plain and u == 0 and n == 1 and total == closed then
          if closed == 0 then
            out = out .. write('>BBI4', short, 0, per)
          else
            out = out .. write(w == 3 and '>BBI4I3' or w == 4 and '>BBI4I4' or '>BBI4I2', short, closed, per,
              last % wrap) .. v:sub(at, fin - 1)
          end
        elseif plain and u == 1 and total + n < 256 then
          if joins then
            out = out .. write('>BBI4BB', short, closed, per, total + n, open + n) .. v:sub(at, fin - 1)
          else
            out = out .. write(w == 3 and '>BBI4BBI3B' or w == 4 and '>BBI4BBI4B' or '>BBI4BBI2B', short, closed, per,
              total + n, n, last % wrap, open) .. v:sub(at, fin - 1)
          end
        else
          if total > 9007199254740992 - n or closed > 65535 then
            failure = 'SLIDEGATE key ' .. key ..
              ' would count more than 2^53 units or 65,536 buckets; wait until some are forgotten, or reset it'
            break
          end
          local body = closed > 0 and v:sub(at, fin - 1) or ''
          if joins then
            open = open + n
          else
            body = write(pair, last % wrap, open) .. body -- without units if every bucket holds 1
            open, res = n, reply[slot + 2]
          end
          out = out .. encode(newT, per, closed, date, res, total + n, open, body, w, u)
        end
        if due > expiry then expiry, px = due, A[slot + base] end
      end
      undecided = undecided - 1
      reply[slot + 1] = wait
      if adds then
        reply[slot] = total + n
        reply[slot + 2] = due - now
      else
        reply[slot] = total
        reply[slot + 2] = total > 0 and last + per - now or 0
      end
    end
  end

  if not failure and (foreign or seen ~= first - 128) then
    failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
      first .. ', or cut short); remove it, or rename the limiter'
  end
  if failure and not units then return redis.error_reply(failure) end

  if inspect then
    local all, bySlot = {0, now}, {}
    local function add(...)
      for _, number in ipairs({...}) do all[#all + 1] = number end
    end
    local function addBuckets(s)
      add(s.total > 0 and s.closed + 1 or 0)
      local p = s.fin
      while s.total > 0 and p > s.at do
        p = p - s.w - s.u
        local b, c = read(s.pair, v, p)
        add(s.last - (s.last - b) % s.wrap, s.u > 0 and c or 1)
      end
      if s.total > 0 then add(s.last, s.open) end
    end
    for _, s in ipairs(sections) do bySlot[s.slot] = s end
    for slot = 3, lastSlot, 3 do
      add(reply[slot], reply[slot + 1], reply[slot + 2])
      addBuckets(bySlot[slot])
    end
    for _, s in ipairs(sections) do
      if s.slot == 0 then
        add(s.per, s.total, s.total > 0 and s.last + s.per - now or 0)
        addBuckets(s)
      end
    end
    if ahead > 0 and ahead == (limits > 0 and limits or seen) then all[2] = earliest end
    return all
  end

  local counted, countedPX -- what a joint call writes if all events are counted
  if joint and counts and not failure then
    if dated or not px then px = string.format('%.0f', expiry - now + grace) end
    counted, countedPX = write('>BI6', 128 + outs, newT) .. out, px
    if outs > 31 then failure = 'SLIDEGATE key ' .. key .. full end
  end

  -- Rewrite the whole record for a refund, or to repair a timestamp when nothing is counted.
  if refund or changed and (joint or not counts) then
    out, outs, expiry, px = '', 0, 0, nil
    for _, s in ipairs(sections) do
      local last, total, open, closed, res = s.last, s.total, s.open, s.closed, s.res
      local step, body = s.w + s.u, v:sub(s.at or 1, s.fin - 1)
      if refund and s.slot > 0 and total > 0 and last >= since and since + s.per > s.date then
        -- Take the units from the first bucket that is not before since. If that is a closed bucket,
        -- it ends before p. If p reaches at, it is the open bucket.
        local p, t, units = s.fin, last, open
        while p > s.at do
          local b, c = read(s.pair, v, p - step)
          t = last - (last - b) % s.wrap
          if t >= since then
            units = s.u > 0 and c or 1
            break
          end
          p = p - step
        end
        local newer, older = v:sub(s.at, p - step - 1), v:sub(p, s.fin - 1)
        changed = true
        if units > n then
          total = total - n
          if p == s.at then open = open - n else body = newer .. write(s.pair, t % s.wrap, units - n) .. older end
        else
          total = total - units
          if p > s.at then
            body = newer .. older
          elseif closed > 0 then
            -- The newest closed bucket becomes the last one. Under Resolution 1, no event joins it.
            local b, c = read(s.pair, v, s.at)
            last, open, res, body = last - (last - b) % s.wrap, s.u > 0 and c or 1, 1, v:sub(s.at + step, s.fin - 1)
          else
            total = 0 -- that was the only bucket
          end
          closed = closed - 1
        end
      end
      if total > 0 and last + s.per > now then
        out, outs = out .. encode(newT, s.per, closed, last, res, total, open, body, s.w, s.u), outs + 1
        if last + s.per > expiry then expiry = last + s.per end
      end
    end
  end

  if joint then
    -- Nothing is written before all events are decided.
    if changed and not failure then
      px = string.format('%.0f', expiry - now + grace)
      out = write('>BI6', 128 + outs, newT) .. out
    end
    local p = places[(k - 1) % size + 1]
    p.key, p.place, p.n, p.T, p.lasts, p.allowed, p.failure = key, place, n, T, lasts, allowed, failure
    p.counted, p.countedPX, p.repaired, p.repairedPX = counted, countedPX, changed and out, px
    if not allowed or failure then fits = false end
    if failure then broken = true end
  elseif (counts or changed) and not looks and not failure then
    if outs > 31 then
      failure = 'SLIDEGATE key ' .. key .. full
    elseif expiry == 0 then
      local deleted = redis.pcall('DEL', key)
      if deleted ~= 0 and deleted ~= 1 then failure = deleted.err end
    else
      if dated or not px then px = string.format('%.0f', expiry - now + grace) end
      failure = redis.pcall('SET', key, write('>BI6', 128 + outs, newT) .. out, 'PX', px).err
    end
  end

  if not allowed then reply[1] = 0 end
  if ahead == limits then reply[2] = earliest end
  if not units then
    if failure then return redis.error_reply(failure) end
    if refund then return {changed and 1 or 0} end
    if not singles then return reply end

    reply[1] = fit
    if op == 'some' or op == 'countsome' then return reply end

    -- The rows. The row of the last call that counted equals reply, and so does the row of a denial after
    -- it. For the verb each, the calls before the last one fill no limit, so their rows have no wait.
    local rows, waits, place = {fit, reply[2]}, {}, 3
    for _, s in ipairs(counting and sections or {}) do
      if s.slot > 0 then
        -- Go through the units of the record, oldest first: at t + Per, gone units are forgotten.
        local gone, t, p, list = 0, 0, s.fin, {}
        local joined = s.last == s.date or s.res > 1 and s.last - s.last % s.res == s.date - s.date % s.res
        for k = 1, n do
          local need = s.total + k + 1 - A[s.slot + base + 1]
          while s.total > 0 and gone < need and p > s.at do
            p = p - s.w - s.u
            local b, c = read(s.pair, v, p)
            gone, t = gone + (s.u > 0 and c or 1), s.last - (s.last - b) % s.wrap
          end
          if gone < need then t = (joined or need > s.total) and s.date or s.last end
          list[k] = need > 0 and math.max(t + s.per - now, 1) or 0
        end
        waits[s.slot] = list
      end
    end
    local counted = lowers and fit or n
    for k = 1, lowers and math.min(A[3] + 0, fit + 1) or n do
      for slot = 3, lastSlot, 3 do
        rows[place] = k < counted and reply[slot] - counted + k or reply[slot]
        rows[place + 1] = k < counted and (waits[slot] and waits[slot][k] or 0) or reply[slot + 1]
        rows[place + 2] = reply[slot + 2]
        place = place + 3
      end
    end
    return rows
  end

  -- Several keys: keep this reply, and prepare the next one.
  local width = lastSlot + 2
  if refund then reply[1], width = changed and 1 or 0, 1 end
  if failure then reply[1] = failure end
  for b = 1, width do all[place + b] = reply[b] end
  for b = 1, lastSlot + 2 do reply[b] = given[b] end
  place = place + width

  if joint and k % size == 0 then
    -- The group is decided. Write all records with their units or, if an event is denied, only the repairs.
    -- After an error, write nothing. Servers check before the first SET of a script whether it may write, so
    -- no later SET fails, unless an ACL allows EVALSHA for all keys but SET for only some of them. In that
    -- case, what was already written stays. If not all events are allowed, the rows of the allowed events
    -- do not include their units.
    for i = 1, size do
      local p = places[i]
      local value, px = p.repaired, p.repairedPX
      if fits then value, px = p.counted, p.countedPX end
      local failure = value and not broken and redis.pcall('SET', p.key, value, 'PX', px).err
      if failure then all[p.place + 1] = failure end
      for b = p.place + 3, not fits and p.allowed and not p.failure and p.place + p.lastSlot or 0, 3 do
        local slot = b - p.place
        all[b], all[b + 1] = all[b] - p.n, 0
        all[b + 2] = all[b] > 0 and (p.lasts and p.lasts[slot] or p.T) + A[p.base + slot] - now or 0
      end
    end
    fits, broken = true, false
  end
end
return all
