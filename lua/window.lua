-- Assembled from the blocks in lua/src by go generate ./lua; change those instead.
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
--            allow      count the units if every limit allows them
--            count      the same, but count the units even if a limit denies
--            peek       reply as allow would, but count nothing
--            some       count as many of the n units as every limit allows, like n consecutive calls
--                       of allow with one unit, all at the same time
--            countsome  count the n units like n calls of count with one unit, including units that
--                       a limit denies
--            counteach  the same as countsome, but reply to each of the n calls
--            inspect    reply with the state, bucket by bucket
--            refund     give back units that an earlier call counted
--            reset      forget the event, even if its record is truncated
--            joint      decide on one or more groups of events, each event under its own limits. If
--                       all limits of all events in a group allow the units, count all of the units,
--                       otherwise none. No key may occur twice
--            undo       refund or reset each event of one or more groups: n is the number of units to
--                       refund, or 0 for a reset
--          Counteach, inspect, refund and reset take one key
-- ARGV[2]  now, in ms since 1970, or empty to use the clock of this server
-- ARGV[2 + k]  n for event k, in units: 1 to 2^53. For counteach it is at most 4096; for allow, count,
--          peek, inspect and joint it is at most the smallest Max
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
--   counteach            how many of the n calls are allowed, the time, and a row for each of the n
--                        calls, in order: the three integers of each limit in the reply to that call
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
-- reset one DEL. If allow, some or joint count nothing, they write only to repair a timestamp
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

if ARGV[1] == 'joint' then
  -- Verbs: joint.
  local read, write = struct.unpack, struct.pack

  local A, keys = ARGV, #KEYS
  local units, places, now, stamp, grace = {}, {}
  do
    local valid, at, least = A[1] == 'joint', keys + 3, 1
    for k = 1, keys do
      local n = A[k + 2] == '1' and 1 or A[k + 2] + 0
      units[k], valid = n, valid and n >= 1 and n <= 9007199254740992 and n % 1 == 0
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
    -- Each event of a group has its own limits. places holds those of each position in a group. given is the
    -- initial value of reply.
    local size = (A[at] or 0) + 0
    if not (size >= 1 and size % 1 == 0 and keys % size == 0) then size, valid = 1, false end
    for k = 1, size do
      local limits, base, most, key, lastSlot, reply = (A[at + 1] or -1) + 0, at - 1, 1, KEYS[k]
      for other = k, keys, size do
        if units[other] > most then most = units[other] end
      end
      at = at + 1 + 3 * limits
      if k == size and at ~= #A then limits = -1 end
      if not (valid and limits % 1 == 0 and limits <= 31 and limits >= least) then
        return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': invalid arguments (see the header of window.lua)')
      end
      -- The limits. Until a limit is decided, its slots in reply hold -Per, Max and Resolution.
      lastSlot = 3 * limits
      if limits == 1 then -- tables of the right size
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
            'SLIDEGATE key %s: limit %d or the units are invalid (see the header of window.lua)', key, slot / 3))
        end
        if per > longest then
          longest = per
        else
          for b = 3, slot - 3, 3 do
            if reply[b] == -per then
              return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
            end
          end
        end
        reply[slot] = -per
        reply[slot + 1] = max
        reply[slot + 2] = width
      end
      places[k] = {base = base, limits = limits, lastSlot = lastSlot, given = reply, reply = {}}
    end
    stamp = now
  end

  local all, counting = {}, false
  for k = 1, keys do
    local key, n, unit, place, adds = KEYS[k], units[k], units[k], places[(k - 1) % #places + 1], true
    local base, limits, lastSlot, reply = place.base, place.limits, place.lastSlot, place.reply
    for b = 1, lastSlot + 2 do reply[b] = place.given[b] end
    -- The record. unread is how many of its sections are still to be read. Below 0, it is no record.
    --   T           the time in the head of the record
    --   failure     why the event fails
    --   pos, slot   where the next section starts; the index in reply of the three integers of its limit
    local v = redis.pcall('GET', key)
    local len, T, unread, pos, slot, failure, flags, closed, per, at = 0, 0, 0, 8, 0
    if v then
      len = #v -- 0 if v is an error
      if len > 12 then -- the shortest record has 13 bytes
        unread, T, flags, closed, per, at = read('>BI6BBI4', v) -- with the head of the first section
        unread = unread - 128
      elseif v.err then
        failure = v.err
        if failure:sub(1, 9) == 'WRONGTYPE' then
          failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
        end
      end
      if unread < 1 or unread > 31 then pos, unread = len + 1, -1 end
    end
    -- The loop decides on one section at a time, and then on each limit that has no section. It writes to
    -- reply the state after the units are counted. The first limit that denies corrects this for the limits
    -- before it.
    --   undecided        how many limits are still undecided
    --   ahead, earliest  how many limits have a date later than now, and the earliest such date
    --   lasts            last of each slot where it is not T
    -- Where units are counted, the new record:
    --   out, outs, expiry, px  its sections, their number, the time when the last of their units is
    --                          forgotten, and the PX for that time, if it is the Per of a limit
    local undecided, ahead, earliest, lasts = unread < 0 and 0 or limits, 0, 281474976710656
    local last, total, open, w, pair, wrap
    local out, outs, expiry, px = '', limits, 0
    local sections = T > now and {} or nil
    while pos <= len or undecided > 0 do
      slot = slot + 3
      local res, u = 1, 0
      if pos <= len then
        -- The section:
        --   per, closed, last, res  Per, how many buckets are closed, the time of the last event, and the
        --                           Resolution under which the last bucket was opened
        --   total, open             the units of all buckets, and those of the last bucket, which is open
        --   at, fin                 where the closed buckets start in v, and where they end (exclusive)
        --   w, u, pair, wrap        how many bytes the time and the units of a closed bucket take, the
        --                           format that reads both, and 256^w
        --   flags                   the flags of the section that tell u and res
        if pos > 8 then flags, closed, per, at = read('>BBI4', v, pos) end
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
        if flags > 3 and flags < 8 then res = (per + 59 - (per + 59) % 60) / 60 end
        unread = unread - 1
        if slot > lastSlot or reply[slot] ~= -per then
          slot = lastSlot
          while slot > 0 and reply[slot] ~= -per do slot = slot - 3 end
          for b = 3, slot == 0 and lastSlot or 0, 3 do
            if A[b + base] + 0 == per then unread = -1 end -- a second section with the same Per
          end
        end
        if unread < 0 or pos > len - 5 and pos ~= len + 1 then unread = -1 break end
      else
        while slot > lastSlot or reply[slot] >= 0 do slot = slot % lastSlot + 3 end -- the next undecided one
        per = -reply[slot]
        last = now - per -- old enough to be forgotten
      end
      local fin = pos
      -- NoTimeTravel: if the clock stepped back, merge everything later than now + Per into one bucket
      -- at now + Per.
      local date = now
      if last > now then
        if last > now + per then
          while closed > 0 do
            local b, c = read(pair, v, at)
            if last - (last - b) % wrap < now + per then break end
            open, closed, at = open + (u > 0 and c or 1), closed - 1, at + w + u
          end
          last, sections.changed = now + per, true
        end
        date = last
        if slot > 0 or limits == 0 then
          ahead = ahead + 1
          if date < earliest then earliest = date end
        end
      end
      local body
      if slot == 0 then
        if sections then
          sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
            open = open, w = w, u = u, pair = pair, wrap = wrap, date = date,
            body = closed > 0 and v:sub(at, fin - 1) or ''}
        end
        -- Keep the sections of callers with other limits until they are forgotten.
        if last + per > now then
          body, outs = v:sub(at, fin - 1), outs + 1
          if last + per > expiry then expiry, px = last + per, nil end
        end
      else
        if last + per <= date then
          local width = reply[slot + 2]
          last = date; res = width
          total = 0; closed = 0; open = 0; u = 0
          flags = width == 1 and 0 or width == (per + 59 - (per + 59) % 60) / 60 and 4 or 8
        else
          while closed > 0 do
            local b, c = read(pair, v, fin - w - u)
            if last - (last - b) % wrap + per > date then break end
            total, closed, fin = total - (u > 0 and c or 1), closed - 1, fin - w - u
          end
          if total < open then unread = -1 break end -- all buckets together hold at least as much as one
        end
        if sections then
          sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
            open = open, w = w, u = u, pair = pair, wrap = wrap, date = date,
            body = closed > 0 and v:sub(at, fin - 1) or ''}
        end
        -- Decide. need is how many units must be forgotten before this call fits or, if it is counted, before
        -- the next call fits. joins is whether new units join the last bucket. b and c are the time and the
        -- units of a bucket.
        local need, wait, joins = total - (reply[slot + 1] - unit), 0
        if need > 0 then
          if adds and undecided < limits and not counting then -- the limits before this one have counted
            for b = 3, lastSlot, 3 do
              if reply[b] >= 0 then
                reply[b], reply[b + 1] = reply[b] - n, 0
                reply[b + 2] = reply[b] > 0 and (lasts and lasts[b] or T) + A[b + base] - now or 0
              end
            end
          end
          reply[1], adds = 0, counting
        end
        if adds then
          joins = last == date or res > 1 and last - last % res == date - date % res
          need = need + n
        end
        if need > total then
          wait = date + per - now
        elseif need > 0 then
          -- Find the bucket with the last of these units. wait is first its time.
          local p = fin
          wait = adds and joins and date or last
          if u == 0 and need <= closed then wait = last - (last - read(pair, v, fin - need * w)) % wrap end
          while u > 0 and need > 0 and p > at do
            local b, c = read(pair, v, p - w - u)
            need, p = need - c, p - w - u
            if need <= 0 then wait = last - (last - b) % wrap end
          end
          wait = wait + per - now
          if wait < 1 then unread = -1 break end -- buckets are in order, so this one is not forgotten yet
        end
        if last ~= T and total > 0 then
          lasts = lasts or {}
          lasts[slot] = last
        end
        if adds then
          if not joins then closed = closed + 1 end
          local plain = flags < 8 and closed < 256 and per < 4294967296 and date == now and (joins or res == reply[slot + 2])
          if plain and u == 0 and n == 1 and total == closed then -- every bucket holds 1
            if closed == 0 then
              out = out .. write('>BBI4', flags, 0, per)
            else
              out = out .. write(w == 3 and '>BBI4I3' or w == 4 and '>BBI4I4' or '>BBI4I2', flags, closed, per,
                last % wrap) .. v:sub(at, fin - 1)
            end
          elseif plain and u == 1 and total + n < 256 then -- units of a byte
            if joins then
              out = out .. write('>BBI4BB', flags, closed, per, total + n, open + n) .. v:sub(at, fin - 1)
            else
              out = out .. write(w == 3 and '>BBI4BBI3B' or w == 4 and '>BBI4BBI4B' or '>BBI4BBI2B', flags, closed, per,
                total + n, n, last % wrap, open) .. v:sub(at, fin - 1)
            end
          else
            if total > 9007199254740992 - n or closed > 65535 then
              failure = 'SLIDEGATE key ' .. key ..
                ' would count more than 2^53 units or 65,536 buckets; wait until some are forgotten, or reset it'
              break
            end
            body = closed > 0 and v:sub(at, fin - 1) or ''
            if joins then
              open = open + n
            else
              body = write(pair, last % wrap, open) .. body -- without units if every bucket holds 1
              open, res = n, reply[slot + 2]
            end
          end
          if date + per > expiry then expiry, px = date + per, A[slot + base] end
        end
        undecided = undecided - 1
        reply[slot + 1] = wait
        if adds then
          reply[slot] = total + n
          reply[slot + 2] = date + per - now
        else
          reply[slot] = total
          reply[slot + 2] = total > 0 and last + per - now or 0
        end
      end
      if body then
        if slot > 0 then last, total = date, total + n end
        -- fits is how many bytes units take: 0 if every bucket holds 1.
        local fits = total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
        if fits > u then
          local wider = {}
          for i = 1, closed do
            local p = (i - 1) * (w + u) + 1
            local held = u == 0 and 1 or read(u == 1 and '>I1' or '>I3', body, p + w)
            wider[i] = body:sub(p, p + w - 1) .. write('>I' .. fits, held)
          end
          body = table.concat(wider)
          u = fits
        end
        local fields = ''
        flags = 0
        if last ~= stamp then flags, fields = 16, write('>I6', last) end
        if res == math.ceil(per / 60) then
          flags = flags + 4
        elseif res > 1 then
          flags, fields = flags + 8, fields .. write('>I6', res)
        end
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
        out = out .. body
      end
    end
    if unread ~= 0 and not failure then
      failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
        (v:byte(1) or 0) .. ', or cut short); remove it, or rename the limiter'
    end
    -- Nothing is written before all events of the group are decided.
    --   counted, repaired  the record with the units counted, and the record without them, if it has a
    --                      timestamp to repair
    place.key, place.start, place.n, place.T, place.lasts, place.allowed = key, #all, n, T, lasts, adds
    place.counted, place.repaired = nil, nil
    if adds and not failure then
      if grace or ahead > 0 or not px then px = string.format('%.0f', expiry - now + (grace or 0)) end
      place.counted, place.countedPX = write('>BI6', 128 + outs, now) .. out, px
      if outs > 31 then
        failure = 'SLIDEGATE key ' .. key .. ' would count for more than 31 limits; wait until some are forgotten, or reset it'
      end
    end
    if sections and sections.changed and not failure then
      out, outs, expiry = '', 0, 0
      for _, s in ipairs(sections) do
        if s.total > 0 and s.last + s.per > now then
          local res, u, body = s.res, s.u, s.body
          per, closed, last, total, open, w = s.per, s.closed, s.last, s.total, s.open, s.w
          -- fits is how many bytes units take: 0 if every bucket holds 1.
          local fits = total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
          if fits > u then
            local wider = {}
            for i = 1, closed do
              local p = (i - 1) * (w + u) + 1
              local held = u == 0 and 1 or read(u == 1 and '>I1' or '>I3', body, p + w)
              wider[i] = body:sub(p, p + w - 1) .. write('>I' .. fits, held)
            end
            body = table.concat(wider)
            u = fits
          end
          local fields = ''
          flags = 0
          if last ~= stamp then flags, fields = 16, write('>I6', last) end
          if res == math.ceil(per / 60) then
            flags = flags + 4
          elseif res > 1 then
            flags, fields = flags + 8, fields .. write('>I6', res)
          end
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
          out = out .. body
          outs = outs + 1
          if last + per > expiry then expiry = last + per end
        end
      end
      place.repaired, place.repairedPX = write('>BI6', 128 + outs, now) .. out, string.format('%.0f', expiry - now + (grace or 0))
    end
    if ahead == limits then reply[2] = earliest end
    place.failure, reply[1] = failure, failure or reply[1]
    for b = 1, lastSlot + 2 do all[place.start + b] = reply[b] end
    -- If an event is denied, write only the repairs. After an error, write nothing. Servers check before the
    -- first SET of a script whether it may write, so no later SET fails, unless an ACL allows EVALSHA for all
    -- keys but SET for only some of them. In that case, what was already written stays. If not all events are
    -- allowed, the rows of the allowed events do not include their units.
    if k % #places == 0 then
      local fits, broken = true, false -- all events are allowed; one of them fails
      for _, e in ipairs(places) do
        if e.failure then broken = true end
        if broken or not e.allowed then fits = false end
      end
      for _, e in ipairs(places) do
        local value, ms = e.repaired, e.repairedPX
        if fits then value, ms = e.counted, e.countedPX end
        local refused = value and not broken and redis.pcall('SET', e.key, value, 'PX', ms).err
        if refused then all[e.start + 1] = refused end
        for i = 3, not fits and e.allowed and not e.failure and e.lastSlot or 0, 3 do
          local b = e.start + i
          all[b], all[b + 1] = all[b] - e.n, 0
          all[b + 2] = all[b] > 0 and (e.lasts and e.lasts[i] or e.T) + A[e.base + i] - now or 0
        end
      end
    end
  end
  return all
elseif ARGV[1] == 'refund' or ARGV[1] == 'reset' then
  -- Verbs: refund reset.
  local read, write, A, base, n, since = struct.unpack, struct.pack, ARGV, 1, ARGV[3] + 0, 0
  local now, grace, lastSlot, reply
  do
    local least, most, count, valid, limits, key = 1, 1, #A, #KEYS == 1 and n >= 1 and n <= 9007199254740992 and n % 1 == 0
    if A[1] == 'refund' then
      since, count = A[count] + 0, count - 1
    else
      n, valid = 0, valid and A[1] == 'reset'
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
    limits, key = (count - 2 - base) / 3, KEYS[1]
    if not (valid and limits % 1 == 0 and limits <= 31 and limits >= least) then
      return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': invalid arguments (see the header of window.lua)')
    end
    -- The limits. Until a limit is decided, its slots in reply hold -Per, Max and Resolution.
    lastSlot = 3 * limits
    if limits == 1 then -- tables of the right size
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
          'SLIDEGATE key %s: limit %d or the units are invalid (see the header of window.lua)', key, slot / 3))
      end
      if per > longest then
        longest = per
      else
        for b = 3, slot - 3, 3 do
          if reply[b] == -per then
            return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
          end
        end
      end
      reply[slot] = -per
      reply[slot + 1] = max
      reply[slot + 2] = width
    end
  end

  local key = KEYS[1]
  -- The record. unread is how many of its sections are still to be read. Below 0, it is no record.
  --   T           the time in the head of the record
  --   failure     why the event fails
  --   pos, slot   where the next section starts; the index in reply of the three integers of its limit
  local v = redis.pcall('GET', key)
  local len, T, unread, pos, slot, failure, flags, closed, per, at = 0, 0, 0, 8, 0
  if v then
    len = #v -- 0 if v is an error
    if len > 12 then -- the shortest record has 13 bytes
      unread, T, flags, closed, per, at = read('>BI6BBI4', v) -- with the head of the first section
      unread = unread - 128
    elseif v.err then
      failure = v.err
      if failure:sub(1, 9) == 'WRONGTYPE' then
        failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
      end
    end
    if unread < 1 or unread > 31 then pos, unread = len + 1, -1 end
  end
  local last, total, open, w, pair, wrap, out, outs, expiry
  local sections, stamp, changed = {}, T, false
  if n == 0 and unread > 0 then pos, unread, changed = len + 1, 0, true end -- as if no section were left
  while pos <= len do
    slot = slot + 3
    local res, u = 1, 0
    -- The section:
    --   per, closed, last, res  Per, how many buckets are closed, the time of the last event, and the
    --                           Resolution under which the last bucket was opened
    --   total, open             the units of all buckets, and those of the last bucket, which is open
    --   at, fin                 where the closed buckets start in v, and where they end (exclusive)
    --   w, u, pair, wrap        how many bytes the time and the units of a closed bucket take, the
    --                           format that reads both, and 256^w
    --   flags                   the flags of the section that tell u and res
    if pos > 8 then flags, closed, per, at = read('>BBI4', v, pos) end
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
    if flags > 3 and flags < 8 then res = (per + 59 - (per + 59) % 60) / 60 end
    unread = unread - 1
    if slot > lastSlot or reply[slot] ~= -per then
      slot = lastSlot
      while slot > 0 and reply[slot] ~= -per do slot = slot - 3 end
      for b = 3, slot == 0 and lastSlot or 0, 3 do
        if A[b + base] + 0 == per then unread = -1 end -- a second section with the same Per
      end
    end
    if unread < 0 or pos > len - 5 and pos ~= len + 1 then unread = -1 break end
    local fin, date = pos, last > now and last or now
    if sections then
      sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
        open = open, w = w, u = u, pair = pair, wrap = wrap, date = date,
        body = closed > 0 and v:sub(at, fin - 1) or ''}
    end
    if slot > 0 then reply[slot] = 0 end -- so that a later section with this Per is an error
  end
  if unread ~= 0 and not failure then
    failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
      (v:byte(1) or 0) .. ', or cut short); remove it, or rename the limiter'
  end
  for _, s in ipairs(failure and {} or sections) do
    if s.slot > 0 and s.total > 0 and s.last >= since and since + s.per > s.date then
      -- Take the units from the first bucket that is not before since. If that is a closed bucket,
      -- it ends before p. If p reaches 1, it is the open bucket.
      local p, step, t, had = #s.body + 1, s.w + s.u, s.last, s.open
      while p > 1 do
        local b, c = read(s.pair, s.body, p - step)
        t = s.last - (s.last - b) % s.wrap
        if t >= since then
          had = s.u > 0 and c or 1
          break
        end
        p = p - step
      end
      local rest = had > n and had - n or 0
      changed, s.total = true, s.total - (had > n and n or had)
      if p > 1 then
        local kept = rest > 0 and write(s.pair, t % s.wrap, rest) or ''
        s.body = s.body:sub(1, p - step - 1) .. kept .. s.body:sub(p)
        if rest == 0 then s.closed = s.closed - 1 end
      elseif rest > 0 then
        s.open = rest
      elseif s.closed > 0 then
        -- The newest closed bucket becomes the last one. Under Resolution 1, no event joins it.
        local b, c = read(s.pair, s.body, 1)
        s.last, s.open, s.res, s.body = s.last - (s.last - b) % s.wrap, s.u > 0 and c or 1, 1, s.body:sub(step + 1)
        s.closed = s.closed - 1
      else
        s.total = 0 -- that was the only bucket
      end
    end
  end
  if changed and not failure then
    out, outs, expiry = '', 0, 0
    for _, s in ipairs(sections) do
      if s.total > 0 and s.last + s.per > now then
        local res, u, body = s.res, s.u, s.body
        per, closed, last, total, open, w = s.per, s.closed, s.last, s.total, s.open, s.w
        -- fits is how many bytes units take: 0 if every bucket holds 1.
        local fits = total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
        if fits > u then
          local wider = {}
          for i = 1, closed do
            local p = (i - 1) * (w + u) + 1
            local held = u == 0 and 1 or read(u == 1 and '>I1' or '>I3', body, p + w)
            wider[i] = body:sub(p, p + w - 1) .. write('>I' .. fits, held)
          end
          body = table.concat(wider)
          u = fits
        end
        local fields = ''
        flags = 0
        if last ~= stamp then flags, fields = 16, write('>I6', last) end
        if res == math.ceil(per / 60) then
          flags = flags + 4
        elseif res > 1 then
          flags, fields = flags + 8, fields .. write('>I6', res)
        end
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
        out = out .. body
        outs = outs + 1
        if last + per > expiry then expiry = last + per end
      end
    end
    if expiry == 0 then
      local deleted = redis.pcall('DEL', key)
      if deleted ~= 0 and deleted ~= 1 then failure = deleted.err end
    else
      local px = string.format('%.0f', expiry - now + (grace or 0))
      failure = redis.pcall('SET', key, write('>BI6', 128 + outs, T) .. out, 'PX', px).err
    end
  end
  if failure then return redis.error_reply(failure) end
  return {changed and 1 or 0}
elseif ARGV[1] == 'undo' then
  -- Verbs: undo.
  local read, write, A, keys = struct.unpack, struct.pack, ARGV, #KEYS
  local units, times, places, now, grace = {}, {}, {}
  do
    local valid, at, least = A[1] == 'undo', 2 * keys + 3, 0
    for k = 1, keys do -- n, and when the units were counted
      local n = A[2 * k + 1] + 0
      units[k], times[k], valid = n, A[2 * k + 2] + 0, valid and n >= 0 and n <= 9007199254740992 and n % 1 == 0
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
    -- Each event of a group has its own limits. places holds those of each position in a group. given is the
    -- initial value of reply.
    local size = (A[at] or 0) + 0
    if not (size >= 1 and size % 1 == 0 and keys % size == 0) then size, valid = 1, false end
    for k = 1, size do
      local limits, base, most, key, lastSlot, reply = (A[at + 1] or -1) + 0, at - 1, 1, KEYS[k]
      at = at + 1 + 3 * limits
      if k == size and at ~= #A then limits = -1 end
      if not (valid and limits % 1 == 0 and limits <= 31 and limits >= least) then
        return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': invalid arguments (see the header of window.lua)')
      end
      -- The limits. Until a limit is decided, its slots in reply hold -Per, Max and Resolution.
      lastSlot = 3 * limits
      if limits == 1 then -- tables of the right size
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
            'SLIDEGATE key %s: limit %d or the units are invalid (see the header of window.lua)', key, slot / 3))
        end
        if per > longest then
          longest = per
        else
          for b = 3, slot - 3, 3 do
            if reply[b] == -per then
              return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
            end
          end
        end
        reply[slot] = -per
        reply[slot + 1] = max
        reply[slot + 2] = width
      end
      places[k] = {base = base, limits = limits, lastSlot = lastSlot, given = reply, reply = {}}
    end
  end

  local all = {}
  for k = 1, keys do
    local key, n, since, place = KEYS[k], units[k], times[k], places[(k - 1) % #places + 1]
    local base, lastSlot, reply = place.base, place.lastSlot, place.reply
    for b = 3, lastSlot do reply[b] = place.given[b] end
    -- The record. unread is how many of its sections are still to be read. Below 0, it is no record.
    --   T           the time in the head of the record
    --   failure     why the event fails
    --   pos, slot   where the next section starts; the index in reply of the three integers of its limit
    local v = redis.pcall('GET', key)
    local len, T, unread, pos, slot, failure, flags, closed, per, at = 0, 0, 0, 8, 0
    if v then
      len = #v -- 0 if v is an error
      if len > 12 then -- the shortest record has 13 bytes
        unread, T, flags, closed, per, at = read('>BI6BBI4', v) -- with the head of the first section
        unread = unread - 128
      elseif v.err then
        failure = v.err
        if failure:sub(1, 9) == 'WRONGTYPE' then
          failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
        end
      end
      if unread < 1 or unread > 31 then pos, unread = len + 1, -1 end
    end
    local last, total, open, w, pair, wrap, out, outs, expiry
    local sections, stamp, changed = {}, T, false
    if n == 0 and unread > 0 then pos, unread, changed = len + 1, 0, true end -- as if no section were left
    while pos <= len do
      slot = slot + 3
      local res, u = 1, 0
      -- The section:
      --   per, closed, last, res  Per, how many buckets are closed, the time of the last event, and the
      --                           Resolution under which the last bucket was opened
      --   total, open             the units of all buckets, and those of the last bucket, which is open
      --   at, fin                 where the closed buckets start in v, and where they end (exclusive)
      --   w, u, pair, wrap        how many bytes the time and the units of a closed bucket take, the
      --                           format that reads both, and 256^w
      --   flags                   the flags of the section that tell u and res
      if pos > 8 then flags, closed, per, at = read('>BBI4', v, pos) end
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
      if flags > 3 and flags < 8 then res = (per + 59 - (per + 59) % 60) / 60 end
      unread = unread - 1
      if slot > lastSlot or reply[slot] ~= -per then
        slot = lastSlot
        while slot > 0 and reply[slot] ~= -per do slot = slot - 3 end
        for b = 3, slot == 0 and lastSlot or 0, 3 do
          if A[b + base] + 0 == per then unread = -1 end -- a second section with the same Per
        end
      end
      if unread < 0 or pos > len - 5 and pos ~= len + 1 then unread = -1 break end
      local fin, date = pos, last > now and last or now
      if sections then
        sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
          open = open, w = w, u = u, pair = pair, wrap = wrap, date = date,
          body = closed > 0 and v:sub(at, fin - 1) or ''}
      end
      if slot > 0 then reply[slot] = 0 end -- so that a later section with this Per is an error
    end
    if unread ~= 0 and not failure then
      failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
        (v:byte(1) or 0) .. ', or cut short); remove it, or rename the limiter'
    end
    for _, s in ipairs(failure and {} or sections) do
      if s.slot > 0 and s.total > 0 and s.last >= since and since + s.per > s.date then
        -- Take the units from the first bucket that is not before since. If that is a closed bucket,
        -- it ends before p. If p reaches 1, it is the open bucket.
        local p, step, t, had = #s.body + 1, s.w + s.u, s.last, s.open
        while p > 1 do
          local b, c = read(s.pair, s.body, p - step)
          t = s.last - (s.last - b) % s.wrap
          if t >= since then
            had = s.u > 0 and c or 1
            break
          end
          p = p - step
        end
        local rest = had > n and had - n or 0
        changed, s.total = true, s.total - (had > n and n or had)
        if p > 1 then
          local kept = rest > 0 and write(s.pair, t % s.wrap, rest) or ''
          s.body = s.body:sub(1, p - step - 1) .. kept .. s.body:sub(p)
          if rest == 0 then s.closed = s.closed - 1 end
        elseif rest > 0 then
          s.open = rest
        elseif s.closed > 0 then
          -- The newest closed bucket becomes the last one. Under Resolution 1, no event joins it.
          local b, c = read(s.pair, s.body, 1)
          s.last, s.open, s.res, s.body = s.last - (s.last - b) % s.wrap, s.u > 0 and c or 1, 1, s.body:sub(step + 1)
          s.closed = s.closed - 1
        else
          s.total = 0 -- that was the only bucket
        end
      end
    end
    if changed and not failure then
      out, outs, expiry = '', 0, 0
      for _, s in ipairs(sections) do
        if s.total > 0 and s.last + s.per > now then
          local res, u, body = s.res, s.u, s.body
          per, closed, last, total, open, w = s.per, s.closed, s.last, s.total, s.open, s.w
          -- fits is how many bytes units take: 0 if every bucket holds 1.
          local fits = total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
          if fits > u then
            local wider = {}
            for i = 1, closed do
              local p = (i - 1) * (w + u) + 1
              local held = u == 0 and 1 or read(u == 1 and '>I1' or '>I3', body, p + w)
              wider[i] = body:sub(p, p + w - 1) .. write('>I' .. fits, held)
            end
            body = table.concat(wider)
            u = fits
          end
          local fields = ''
          flags = 0
          if last ~= stamp then flags, fields = 16, write('>I6', last) end
          if res == math.ceil(per / 60) then
            flags = flags + 4
          elseif res > 1 then
            flags, fields = flags + 8, fields .. write('>I6', res)
          end
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
          out = out .. body
          outs = outs + 1
          if last + per > expiry then expiry = last + per end
        end
      end
      if expiry == 0 then
        local deleted = redis.pcall('DEL', key)
        if deleted ~= 0 and deleted ~= 1 then failure = deleted.err end
      else
        local px = string.format('%.0f', expiry - now + (grace or 0))
        failure = redis.pcall('SET', key, write('>BI6', 128 + outs, T) .. out, 'PX', px).err
      end
    end
    all[k] = failure or changed and 1 or 0
  end
  return all
elseif ARGV[1] == 'counteach' then
  -- Verbs: counteach.
  local read, write = struct.unpack, struct.pack
  local A, base, n, unit, counting, singles = ARGV, 1, ARGV[3] + 0, 1, true, true
  local now, stamp, grace, limits, lastSlot, reply
  do
    local least, most, count, valid, key = 1, 1, #A, A[1] == 'counteach' and #KEYS == 1 and n >= 1 and n <= 4096 and n % 1 == 0
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
    limits, key = (count - 2 - base) / 3, KEYS[1]
    if not (valid and limits % 1 == 0 and limits <= 31 and limits >= least) then
      return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': invalid arguments (see the header of window.lua)')
    end
    -- The limits. Until a limit is decided, its slots in reply hold -Per, Max and Resolution.
    lastSlot = 3 * limits
    if limits == 1 then -- tables of the right size
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
          'SLIDEGATE key %s: limit %d or the units are invalid (see the header of window.lua)', key, slot / 3))
      end
      if per > longest then
        longest = per
      else
        for b = 3, slot - 3, 3 do
          if reply[b] == -per then
            return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
          end
        end
      end
      reply[slot] = -per
      reply[slot + 1] = max
      reply[slot + 2] = width
    end
    stamp = now
  end

  local key, adds = KEYS[1], true
  reply[1] = n
  -- The record. unread is how many of its sections are still to be read. Below 0, it is no record.
  --   T           the time in the head of the record
  --   failure     why the event fails
  --   pos, slot   where the next section starts; the index in reply of the three integers of its limit
  local v = redis.pcall('GET', key)
  local len, T, unread, pos, slot, failure, flags, closed, per, at = 0, 0, 0, 8, 0
  if v then
    len = #v -- 0 if v is an error
    if len > 12 then -- the shortest record has 13 bytes
      unread, T, flags, closed, per, at = read('>BI6BBI4', v) -- with the head of the first section
      unread = unread - 128
    elseif v.err then
      failure = v.err
      if failure:sub(1, 9) == 'WRONGTYPE' then
        failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
      end
    end
    if unread < 1 or unread > 31 then pos, unread = len + 1, -1 end
  end
  -- The loop decides on one section at a time, and then on each limit that has no section. It writes to
  -- reply the state after the units are counted. The first limit that denies corrects this for the limits
  -- before it.
  --   undecided        how many limits are still undecided
  --   ahead, earliest  how many limits have a date later than now, and the earliest such date
  --   lasts            last of each slot where it is not T
  -- Where units are counted, the new record:
  --   out, outs, expiry, px  its sections, their number, the time when the last of their units is
  --                          forgotten, and the PX for that time, if it is the Per of a limit
  local undecided, ahead, earliest, lasts = unread < 0 and 0 or limits, 0, 281474976710656
  local last, total, open, w, pair, wrap
  local out, outs, expiry, px = '', limits, 0
  local sections = {}
  while pos <= len or undecided > 0 do
    slot = slot + 3
    local res, u = 1, 0
    if pos <= len then
      -- The section:
      --   per, closed, last, res  Per, how many buckets are closed, the time of the last event, and the
      --                           Resolution under which the last bucket was opened
      --   total, open             the units of all buckets, and those of the last bucket, which is open
      --   at, fin                 where the closed buckets start in v, and where they end (exclusive)
      --   w, u, pair, wrap        how many bytes the time and the units of a closed bucket take, the
      --                           format that reads both, and 256^w
      --   flags                   the flags of the section that tell u and res
      if pos > 8 then flags, closed, per, at = read('>BBI4', v, pos) end
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
      if flags > 3 and flags < 8 then res = (per + 59 - (per + 59) % 60) / 60 end
      unread = unread - 1
      if slot > lastSlot or reply[slot] ~= -per then
        slot = lastSlot
        while slot > 0 and reply[slot] ~= -per do slot = slot - 3 end
        for b = 3, slot == 0 and lastSlot or 0, 3 do
          if A[b + base] + 0 == per then unread = -1 end -- a second section with the same Per
        end
      end
      if unread < 0 or pos > len - 5 and pos ~= len + 1 then unread = -1 break end
    else
      while slot > lastSlot or reply[slot] >= 0 do slot = slot % lastSlot + 3 end -- the next undecided one
      per = -reply[slot]
      last = now - per -- old enough to be forgotten
    end
    local fin = pos
    -- NoTimeTravel: if the clock stepped back, merge everything later than now + Per into one bucket
    -- at now + Per.
    local date = now
    if last > now then
      if last > now + per then
        while closed > 0 do
          local b, c = read(pair, v, at)
          if last - (last - b) % wrap < now + per then break end
          open, closed, at = open + (u > 0 and c or 1), closed - 1, at + w + u
        end
        last, sections.changed = now + per, true
      end
      date = last
      if slot > 0 or limits == 0 then
        ahead = ahead + 1
        if date < earliest then earliest = date end
      end
    end
    local body
    if slot == 0 then
      if sections then
        sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
          open = open, w = w, u = u, pair = pair, wrap = wrap, date = date,
          body = closed > 0 and v:sub(at, fin - 1) or ''}
      end
      -- Keep the sections of callers with other limits until they are forgotten.
      if last + per > now then
        body, outs = v:sub(at, fin - 1), outs + 1
        if last + per > expiry then expiry, px = last + per, nil end
      end
    else
      if last + per <= date then
        local width = reply[slot + 2]
        last = date; res = width
        total = 0; closed = 0; open = 0; u = 0
        flags = width == 1 and 0 or width == (per + 59 - (per + 59) % 60) / 60 and 4 or 8
      else
        while closed > 0 do
          local b, c = read(pair, v, fin - w - u)
          if last - (last - b) % wrap + per > date then break end
          total, closed, fin = total - (u > 0 and c or 1), closed - 1, fin - w - u
        end
        if total < open then unread = -1 break end -- all buckets together hold at least as much as one
      end
      if sections then
        sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
          open = open, w = w, u = u, pair = pair, wrap = wrap, date = date,
          body = closed > 0 and v:sub(at, fin - 1) or ''}
      end
      -- Decide. need is how many units must be forgotten before this call fits or, if it is counted, before
      -- the next call fits. joins is whether new units join the last bucket. b and c are the time and the
      -- units of a bucket.
      local need, wait, joins = total - (reply[slot + 1] - unit), 0
      if singles and need + reply[1] > 1 then
        reply[1] = need < 1 and 1 - need or 0
      end
      if need > 0 then
        if adds and undecided < limits and not counting then -- the limits before this one have counted
          for b = 3, lastSlot, 3 do
            if reply[b] >= 0 then
              reply[b], reply[b + 1] = reply[b] - n, 0
              reply[b + 2] = reply[b] > 0 and (lasts and lasts[b] or T) + A[b + base] - now or 0
            end
          end
        end
        reply[1], adds = 0, counting
      end
      if adds then
        joins = last == date or res > 1 and last - last % res == date - date % res
        need = need + n
      end
      if need > total then
        wait = date + per - now
      elseif need > 0 then
        -- Find the bucket with the last of these units. wait is first its time.
        local p = fin
        wait = adds and joins and date or last
        if u == 0 and need <= closed then wait = last - (last - read(pair, v, fin - need * w)) % wrap end
        while u > 0 and need > 0 and p > at do
          local b, c = read(pair, v, p - w - u)
          need, p = need - c, p - w - u
          if need <= 0 then wait = last - (last - b) % wrap end
        end
        wait = wait + per - now
        if wait < 1 then unread = -1 break end -- buckets are in order, so this one is not forgotten yet
      end
      if last ~= T and total > 0 then
        lasts = lasts or {}
        lasts[slot] = last
      end
      if not joins then closed = closed + 1 end
      local plain = flags < 8 and closed < 256 and per < 4294967296 and date == now and (joins or res == reply[slot + 2])
      if plain and u == 0 and n == 1 and total == closed then -- every bucket holds 1
        if closed == 0 then
          out = out .. write('>BBI4', flags, 0, per)
        else
          out = out .. write(w == 3 and '>BBI4I3' or w == 4 and '>BBI4I4' or '>BBI4I2', flags, closed, per,
            last % wrap) .. v:sub(at, fin - 1)
        end
      elseif plain and u == 1 and total + n < 256 then -- units of a byte
        if joins then
          out = out .. write('>BBI4BB', flags, closed, per, total + n, open + n) .. v:sub(at, fin - 1)
        else
          out = out .. write(w == 3 and '>BBI4BBI3B' or w == 4 and '>BBI4BBI4B' or '>BBI4BBI2B', flags, closed, per,
            total + n, n, last % wrap, open) .. v:sub(at, fin - 1)
        end
      else
        if total > 9007199254740992 - n or closed > 65535 then
          failure = 'SLIDEGATE key ' .. key ..
            ' would count more than 2^53 units or 65,536 buckets; wait until some are forgotten, or reset it'
          break
        end
        body = closed > 0 and v:sub(at, fin - 1) or ''
        if joins then
          open = open + n
        else
          body = write(pair, last % wrap, open) .. body -- without units if every bucket holds 1
          open, res = n, reply[slot + 2]
        end
      end
      if date + per > expiry then expiry, px = date + per, A[slot + base] end
      undecided = undecided - 1
      reply[slot + 1] = wait
      if adds then
        reply[slot] = total + n
        reply[slot + 2] = date + per - now
      else
        reply[slot] = total
        reply[slot + 2] = total > 0 and last + per - now or 0
      end
    end
    if body then
      if slot > 0 then last, total = date, total + n end
      -- fits is how many bytes units take: 0 if every bucket holds 1.
      local fits = total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
      if fits > u then
        local wider = {}
        for i = 1, closed do
          local p = (i - 1) * (w + u) + 1
          local held = u == 0 and 1 or read(u == 1 and '>I1' or '>I3', body, p + w)
          wider[i] = body:sub(p, p + w - 1) .. write('>I' .. fits, held)
        end
        body = table.concat(wider)
        u = fits
      end
      local fields = ''
      flags = 0
      if last ~= stamp then flags, fields = 16, write('>I6', last) end
      if res == math.ceil(per / 60) then
        flags = flags + 4
      elseif res > 1 then
        flags, fields = flags + 8, fields .. write('>I6', res)
      end
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
      out = out .. body
    end
  end
  if unread ~= 0 and not failure then
    failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
      (v:byte(1) or 0) .. ', or cut short); remove it, or rename the limiter'
  end
  if not failure then
    if outs > 31 then
      failure = 'SLIDEGATE key ' .. key .. ' would count for more than 31 limits; wait until some are forgotten, or reset it'
    end
    if not failure then
      if grace or ahead > 0 or not px then px = string.format('%.0f', expiry - now + (grace or 0)) end
      failure = redis.pcall('SET', key, write('>BI6', 128 + outs, now) .. out, 'PX', px).err
    end
  end
  if failure then return redis.error_reply(failure) end
  if ahead == limits then reply[2] = earliest end
  -- The row of the last call equals reply. Go through the units of the record, oldest first, to find the
  -- waits of the calls before it: at t + Per, gone units are forgotten.
  local rows, waits = {reply[1], reply[2]}, {}
  for _, s in ipairs(sections) do
    if s.slot > 0 then
      local gone, t, p, list = 0, 0, #s.body + 1, {}
      local joined = s.last == s.date or s.res > 1 and s.last - s.last % s.res == s.date - s.date % s.res
      for call = 1, n do
        local need = s.total + call + 1 - A[s.slot + base + 1]
        while s.total > 0 and gone < need and p > 1 do
          p = p - s.w - s.u
          local b, c = read(s.pair, s.body, p)
          gone, t = gone + (s.u > 0 and c or 1), s.last - (s.last - b) % s.wrap
        end
        if gone < need then t = (joined or need > s.total) and s.date or s.last end
        list[call] = need > 0 and math.max(t + s.per - now, 1) or 0
      end
      waits[s.slot] = list
    end
  end
  for call = 1, n do
    for i = 3, lastSlot, 3 do
      rows[#rows + 1] = reply[i] - n + call
      rows[#rows + 1] = call < n and waits[i][call] or reply[i + 1]
      rows[#rows + 1] = reply[i + 2]
    end
  end
  return rows
elseif ARGV[1] == 'inspect' then
  -- Verbs: inspect.
  local read = struct.unpack

  local A, base, n, unit, adds, counting = ARGV, #KEYS, ARGV[3] + 0, ARGV[3] + 0, false, false
  local now, limits, lastSlot, reply
  do
    local least, most, count, valid, key = 0, n, #A,
      A[1] == 'inspect' and base == 1 and n >= 1 and n <= 9007199254740992 and n % 1 == 0
    now = A[2]
    if now == '' then
      local t = redis.call('TIME')
      local us = t[2] + 0
      now = t[1] * 1000 + (us - us % 1000) / 1000
    else
      now = now + 0
      valid = valid and now >= 0 and now < 140737488355328 and now % 1 == 0
    end
    limits, key = (count - 2 - base) / 3, KEYS[1]
    if not (valid and limits % 1 == 0 and limits <= 31 and limits >= least) then
      return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': invalid arguments (see the header of window.lua)')
    end
    -- The limits. Until a limit is decided, its slots in reply hold -Per, Max and Resolution.
    lastSlot = 3 * limits
    if limits == 1 then -- tables of the right size
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
          'SLIDEGATE key %s: limit %d or the units are invalid (see the header of window.lua)', key, slot / 3))
      end
      if per > longest then
        longest = per
      else
        for b = 3, slot - 3, 3 do
          if reply[b] == -per then
            return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
          end
        end
      end
      reply[slot] = -per
      reply[slot + 1] = max
      reply[slot + 2] = width
    end
  end

  local key = KEYS[1]
  -- The record. unread is how many of its sections are still to be read. Below 0, it is no record.
  --   T           the time in the head of the record
  --   failure     why the event fails
  --   pos, slot   where the next section starts; the index in reply of the three integers of its limit
  local v = redis.pcall('GET', key)
  local len, T, unread, pos, slot, failure, flags, closed, per, at = 0, 0, 0, 8, 0
  if v then
    len = #v -- 0 if v is an error
    if len > 12 then -- the shortest record has 13 bytes
      unread, T, flags, closed, per, at = read('>BI6BBI4', v) -- with the head of the first section
      unread = unread - 128
    elseif v.err then
      failure = v.err
      if failure:sub(1, 9) == 'WRONGTYPE' then
        failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
      end
    end
    if unread < 1 or unread > 31 then pos, unread = len + 1, -1 end
  end
  -- The loop decides on one section at a time, and then on each limit that has no section. It writes to
  -- reply the state after the units are counted. The first limit that denies corrects this for the limits
  -- before it.
  --   undecided        how many limits are still undecided
  --   ahead, earliest  how many limits have a date later than now, and the earliest such date
  --   lasts            last of each slot where it is not T
  -- Where units are counted, the new record:
  --   out, outs, expiry, px  its sections, their number, the time when the last of their units is
  --                          forgotten, and the PX for that time, if it is the Per of a limit
  local undecided, ahead, earliest, lasts = unread < 0 and 0 or limits, 0, 281474976710656
  local last, total, open, w, pair, wrap
  local sections = {}
  while pos <= len or undecided > 0 do
    slot = slot + 3
    local res, u = 1, 0
    if pos <= len then
      -- The section:
      --   per, closed, last, res  Per, how many buckets are closed, the time of the last event, and the
      --                           Resolution under which the last bucket was opened
      --   total, open             the units of all buckets, and those of the last bucket, which is open
      --   at, fin                 where the closed buckets start in v, and where they end (exclusive)
      --   w, u, pair, wrap        how many bytes the time and the units of a closed bucket take, the
      --                           format that reads both, and 256^w
      --   flags                   the flags of the section that tell u and res
      if pos > 8 then flags, closed, per, at = read('>BBI4', v, pos) end
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
      if flags > 3 and flags < 8 then res = (per + 59 - (per + 59) % 60) / 60 end
      unread = unread - 1
      if slot > lastSlot or reply[slot] ~= -per then
        slot = lastSlot
        while slot > 0 and reply[slot] ~= -per do slot = slot - 3 end
        for b = 3, slot == 0 and lastSlot or 0, 3 do
          if A[b + base] + 0 == per then unread = -1 end -- a second section with the same Per
        end
      end
      if unread < 0 or pos > len - 5 and pos ~= len + 1 then unread = -1 break end
    else
      while slot > lastSlot or reply[slot] >= 0 do slot = slot % lastSlot + 3 end -- the next undecided one
      per = -reply[slot]
      last = now - per -- old enough to be forgotten
    end
    local fin = pos
    -- NoTimeTravel: if the clock stepped back, merge everything later than now + Per into one bucket
    -- at now + Per.
    local date = now
    if last > now then
      if last > now + per then
        while closed > 0 do
          local b, c = read(pair, v, at)
          if last - (last - b) % wrap < now + per then break end
          open, closed, at = open + (u > 0 and c or 1), closed - 1, at + w + u
        end
        last, sections.changed = now + per, true
      end
      date = last
      if slot > 0 or limits == 0 then
        ahead = ahead + 1
        if date < earliest then earliest = date end
      end
    end
    if last + per <= date then
      local width = reply[slot + 2]
      last = date; res = width
      total = 0; closed = 0; open = 0; u = 0
      flags = width == 1 and 0 or width == (per + 59 - (per + 59) % 60) / 60 and 4 or 8
    else
      while closed > 0 do
        local b, c = read(pair, v, fin - w - u)
        if last - (last - b) % wrap + per > date then break end
        total, closed, fin = total - (u > 0 and c or 1), closed - 1, fin - w - u
      end
      if total < open then unread = -1 break end -- all buckets together hold at least as much as one
    end
    if sections then
      sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
        open = open, w = w, u = u, pair = pair, wrap = wrap, date = date,
        body = closed > 0 and v:sub(at, fin - 1) or ''}
    end
    if slot > 0 then
      -- Decide. need is how many units must be forgotten before this call fits or, if it is counted, before
      -- the next call fits. joins is whether new units join the last bucket. b and c are the time and the
      -- units of a bucket.
      local need, wait, joins = total - (reply[slot + 1] - unit), 0
      if need > 0 then
        if adds and undecided < limits and not counting then -- the limits before this one have counted
          for b = 3, lastSlot, 3 do
            if reply[b] >= 0 then
              reply[b], reply[b + 1] = reply[b] - n, 0
              reply[b + 2] = reply[b] > 0 and (lasts and lasts[b] or T) + A[b + base] - now or 0
            end
          end
        end
        reply[1], adds = 0, counting
      end
      if adds then
        joins = last == date or res > 1 and last - last % res == date - date % res
        need = need + n
      end
      if need > total then
        wait = date + per - now
      elseif need > 0 then
        -- Find the bucket with the last of these units. wait is first its time.
        local p = fin
        wait = adds and joins and date or last
        if u == 0 and need <= closed then wait = last - (last - read(pair, v, fin - need * w)) % wrap end
        while u > 0 and need > 0 and p > at do
          local b, c = read(pair, v, p - w - u)
          need, p = need - c, p - w - u
          if need <= 0 then wait = last - (last - b) % wrap end
        end
        wait = wait + per - now
        if wait < 1 then unread = -1 break end -- buckets are in order, so this one is not forgotten yet
      end
      if last ~= T and total > 0 then
        lasts = lasts or {}
        lasts[slot] = last
      end
      undecided = undecided - 1
      reply[slot + 1] = wait
      if adds then
        reply[slot] = total + n
        reply[slot + 2] = date + per - now
      else
        reply[slot] = total
        reply[slot + 2] = total > 0 and last + per - now or 0
      end
    end
  end
  if unread ~= 0 and not failure then
    failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
      (v:byte(1) or 0) .. ', or cut short); remove it, or rename the limiter'
  end
  if failure then return redis.error_reply(failure) end
  local all, bySlot = {0, now}, {}
  local function add(...)
    for _, number in ipairs({...}) do all[#all + 1] = number end
  end
  local function addBuckets(s)
    add(s.total > 0 and s.closed + 1 or 0)
    local p = #s.body + 1
    while s.total > 0 and p > 1 do
      p = p - s.w - s.u
      local b, c = read(s.pair, s.body, p)
      add(s.last - (s.last - b) % s.wrap, s.u > 0 and c or 1)
    end
    if s.total > 0 then add(s.last, s.open) end
  end
  for _, s in ipairs(sections) do bySlot[s.slot] = s end
  for i = 3, lastSlot, 3 do
    add(reply[i], reply[i + 1], reply[i + 2])
    addBuckets(bySlot[i])
  end
  for _, s in ipairs(sections) do
    if s.slot == 0 then
      add(s.per, s.total, s.total > 0 and s.last + s.per - now or 0)
      addBuckets(s)
    end
  end
  if ahead > 0 and ahead == (limits > 0 and limits or #sections) then all[2] = earliest end
  return all
else
  -- Verbs: allow count peek some countsome.
  -- The integers of the limit in slot 3, 6, ... of reply start at A[base + slot].
  local read, write, A, base = struct.unpack, struct.pack, ARGV, #KEYS
  local n, unit, units, writes, counting, singles -- the verb
  local now, stamp, grace, limits, lastSlot, reply, given
  do
    local least, count, valid, most, key = 1, #A
    -- The verb. One call counts unit units, and the waits are for one call. All calls together count n.
    -- If there are several events, units lists the n of each event.
    --   writes    units that fit are counted
    --   counting  units that a limit denies are counted, too
    --   singles   a call is n calls of one unit each
    local op = A[1]
    n = A[3] == '1' and 1 or A[3] + 0
    valid, most, writes = n == 1 or n >= 1 and n <= 9007199254740992 and n % 1 == 0, n, true
    if op ~= 'allow' then
      counting, singles, writes = op == 'count' or op == 'countsome', op == 'some' or op == 'countsome', op ~= 'peek'
      valid = valid and (counting or singles or not writes)
    end
    if base > 1 then
      units = {n}
      for k = 2, base do
        local more = A[k + 2] == '1' and 1 or A[k + 2] + 0
        if more > most then most = more end
        units[k], valid = more, valid and more >= 1 and more % 1 == 0
      end
      valid = valid and most <= 9007199254740992
    end
    if singles then most = 1 end
    unit = most
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
    limits, key = (count - 2 - base) / 3, KEYS[1]
    if not (valid and limits % 1 == 0 and limits <= 31 and limits >= least) then
      return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': invalid arguments (see the header of window.lua)')
    end
    -- The limits. Until a limit is decided, its slots in reply hold -Per, Max and Resolution.
    lastSlot = 3 * limits
    if limits == 1 then -- tables of the right size
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
          'SLIDEGATE key %s: limit %d or the units are invalid (see the header of window.lua)', key, slot / 3))
      end
      if per > longest then
        longest = per
      else
        for b = 3, slot - 3, 3 do
          if reply[b] == -per then
            return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
          end
        end
      end
      reply[slot] = -per
      reply[slot + 1] = max
      reply[slot + 2] = width
    end
    stamp = now
    if units then
      given = {} -- the initial value of reply
      for b = 1, lastSlot + 2 do given[b] = reply[b] end
    end
  end

  local all = units and {} -- the replies to several events
  for k = 1, base do
    local key, adds = KEYS[k], true
    if units then
      n = units[k]
      if not singles then unit = n end
    end
    if singles then reply[1] = n end
    -- The record. unread is how many of its sections are still to be read. Below 0, it is no record.
    --   T           the time in the head of the record
    --   failure     why the event fails
    --   pos, slot   where the next section starts; the index in reply of the three integers of its limit
    local v = redis.pcall('GET', key)
    local len, T, unread, pos, slot, failure, flags, closed, per, at = 0, 0, 0, 8, 0
    if v then
      len = #v -- 0 if v is an error
      if len > 12 then -- the shortest record has 13 bytes
        unread, T, flags, closed, per, at = read('>BI6BBI4', v) -- with the head of the first section
        unread = unread - 128
      elseif v.err then
        failure = v.err
        if failure:sub(1, 9) == 'WRONGTYPE' then
          failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
        end
      end
      if unread < 1 or unread > 31 then pos, unread = len + 1, -1 end
    end
    -- The loop decides on one section at a time, and then on each limit that has no section. It writes to
    -- reply the state after the units are counted. The first limit that denies corrects this for the limits
    -- before it.
    --   undecided        how many limits are still undecided
    --   ahead, earliest  how many limits have a date later than now, and the earliest such date
    --   lasts            last of each slot where it is not T
    -- Where units are counted, the new record:
    --   out, outs, expiry, px  its sections, their number, the time when the last of their units is
    --                          forgotten, and the PX for that time, if it is the Per of a limit
    local undecided, ahead, earliest, lasts = unread < 0 and 0 or limits, 0, 281474976710656
    local last, total, open, w, pair, wrap
    local out, outs, expiry, px, again = '', limits, 0
    local sections = T > now and {} or nil -- a denial may have to repair a timestamp
    while pos <= len or undecided > 0 or again do
      -- A limit can allow fewer units than the limits before it have counted. The loop then starts over, with
      -- as many units as every limit allows.
      if again and pos > len and undecided == 0 then
        pos, slot, undecided, ahead, out, outs, expiry, again = 8, 0, limits, 0, '', limits, 0, false
        sections, adds, reply[1] = sections and {}, true, n
        for b = 3, lastSlot, 3 do
          reply[b], reply[b + 1], reply[b + 2] = -A[b + base], A[b + base + 1] + 0, A[b + base + 2] + 0
        end
        if v then
          unread, T, flags, closed, per, at = read('>BI6BBI4', v)
          unread = unread - 128
        end
      end
      slot = slot + 3
      local res, u = 1, 0
      if pos <= len then
        -- The section:
        --   per, closed, last, res  Per, how many buckets are closed, the time of the last event, and the
        --                           Resolution under which the last bucket was opened
        --   total, open             the units of all buckets, and those of the last bucket, which is open
        --   at, fin                 where the closed buckets start in v, and where they end (exclusive)
        --   w, u, pair, wrap        how many bytes the time and the units of a closed bucket take, the
        --                           format that reads both, and 256^w
        --   flags                   the flags of the section that tell u and res
        if pos > 8 then flags, closed, per, at = read('>BBI4', v, pos) end
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
        if flags > 3 and flags < 8 then res = (per + 59 - (per + 59) % 60) / 60 end
        unread = unread - 1
        if slot > lastSlot or reply[slot] ~= -per then
          slot = lastSlot
          while slot > 0 and reply[slot] ~= -per do slot = slot - 3 end
          for b = 3, slot == 0 and lastSlot or 0, 3 do
            if A[b + base] + 0 == per then unread = -1 end -- a second section with the same Per
          end
        end
        if unread < 0 or pos > len - 5 and pos ~= len + 1 then unread = -1 break end
      else
        while slot > lastSlot or reply[slot] >= 0 do slot = slot % lastSlot + 3 end -- the next undecided one
        per = -reply[slot]
        last = now - per -- old enough to be forgotten
      end
      local fin = pos
      -- NoTimeTravel: if the clock stepped back, merge everything later than now + Per into one bucket
      -- at now + Per.
      local date = now
      if last > now then
        if last > now + per then
          while closed > 0 do
            local b, c = read(pair, v, at)
            if last - (last - b) % wrap < now + per then break end
            open, closed, at = open + (u > 0 and c or 1), closed - 1, at + w + u
          end
          last, sections.changed = now + per, true
        end
        date = last
        if slot > 0 or limits == 0 then
          ahead = ahead + 1
          if date < earliest then earliest = date end
        end
      end
      local body
      if slot == 0 then
        if sections then
          sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
            open = open, w = w, u = u, pair = pair, wrap = wrap, date = date,
            body = closed > 0 and v:sub(at, fin - 1) or ''}
        end
        -- Keep the sections of callers with other limits until they are forgotten.
        if last + per > now then
          body, outs = v:sub(at, fin - 1), outs + 1
          if last + per > expiry then expiry, px = last + per, nil end
        end
      else
        if last + per <= date then
          local width = reply[slot + 2]
          last = date; res = width
          total = 0; closed = 0; open = 0; u = 0
          flags = width == 1 and 0 or width == (per + 59 - (per + 59) % 60) / 60 and 4 or 8
        else
          while closed > 0 do
            local b, c = read(pair, v, fin - w - u)
            if last - (last - b) % wrap + per > date then break end
            total, closed, fin = total - (u > 0 and c or 1), closed - 1, fin - w - u
          end
          if total < open then unread = -1 break end -- all buckets together hold at least as much as one
        end
        if sections then
          sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
            open = open, w = w, u = u, pair = pair, wrap = wrap, date = date,
            body = closed > 0 and v:sub(at, fin - 1) or ''}
        end
        -- Decide. need is how many units must be forgotten before this call fits or, if it is counted, before
        -- the next call fits. joins is whether new units join the last bucket. b and c are the time and the
        -- units of a bucket.
        local need, wait, joins = total - (reply[slot + 1] - unit), 0
        if singles and need + reply[1] > 1 then
          reply[1] = need < 1 and 1 - need or 0
          if not counting and need < 1 then again, n = again or undecided < limits, reply[1] end
        end
        if need > 0 then
          if adds and undecided < limits and not counting then -- the limits before this one have counted
            for b = 3, lastSlot, 3 do
              if reply[b] >= 0 then
                reply[b], reply[b + 1] = reply[b] - n, 0
                reply[b + 2] = reply[b] > 0 and (lasts and lasts[b] or T) + A[b + base] - now or 0
              end
            end
          end
          reply[1], adds = 0, counting
        end
        if adds then
          joins = last == date or res > 1 and last - last % res == date - date % res
          need = need + n
        end
        if need > total then
          wait = date + per - now
        elseif need > 0 then
          -- Find the bucket with the last of these units. wait is first its time.
          local p = fin
          wait = adds and joins and date or last
          if u == 0 and need <= closed then wait = last - (last - read(pair, v, fin - need * w)) % wrap end
          while u > 0 and need > 0 and p > at do
            local b, c = read(pair, v, p - w - u)
            need, p = need - c, p - w - u
            if need <= 0 then wait = last - (last - b) % wrap end
          end
          wait = wait + per - now
          if wait < 1 then unread = -1 break end -- buckets are in order, so this one is not forgotten yet
        end
        if last ~= T and total > 0 then
          lasts = lasts or {}
          lasts[slot] = last
        end
        if adds and writes then
          if not joins then closed = closed + 1 end
          local plain = flags < 8 and closed < 256 and per < 4294967296 and date == now and (joins or res == reply[slot + 2])
          if plain and u == 0 and n == 1 and total == closed then -- every bucket holds 1
            if closed == 0 then
              out = out .. write('>BBI4', flags, 0, per)
            else
              out = out .. write(w == 3 and '>BBI4I3' or w == 4 and '>BBI4I4' or '>BBI4I2', flags, closed, per,
                last % wrap) .. v:sub(at, fin - 1)
            end
          elseif plain and u == 1 and total + n < 256 then -- units of a byte
            if joins then
              out = out .. write('>BBI4BB', flags, closed, per, total + n, open + n) .. v:sub(at, fin - 1)
            else
              out = out .. write(w == 3 and '>BBI4BBI3B' or w == 4 and '>BBI4BBI4B' or '>BBI4BBI2B', flags, closed, per,
                total + n, n, last % wrap, open) .. v:sub(at, fin - 1)
            end
          else
            if total > 9007199254740992 - n or closed > 65535 then
              failure = 'SLIDEGATE key ' .. key ..
                ' would count more than 2^53 units or 65,536 buckets; wait until some are forgotten, or reset it'
              break
            end
            body = closed > 0 and v:sub(at, fin - 1) or ''
            if joins then
              open = open + n
            else
              body = write(pair, last % wrap, open) .. body -- without units if every bucket holds 1
              open, res = n, reply[slot + 2]
            end
          end
          if date + per > expiry then expiry, px = date + per, A[slot + base] end
        end
        undecided = undecided - 1
        reply[slot + 1] = wait
        if adds then
          reply[slot] = total + n
          reply[slot + 2] = date + per - now
        else
          reply[slot] = total
          reply[slot + 2] = total > 0 and last + per - now or 0
        end
      end
      if body then
        if slot > 0 then last, total = date, total + n end
        -- fits is how many bytes units take: 0 if every bucket holds 1.
        local fits = total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
        if fits > u then
          local wider = {}
          for i = 1, closed do
            local p = (i - 1) * (w + u) + 1
            local held = u == 0 and 1 or read(u == 1 and '>I1' or '>I3', body, p + w)
            wider[i] = body:sub(p, p + w - 1) .. write('>I' .. fits, held)
          end
          body = table.concat(wider)
          u = fits
        end
        local fields = ''
        flags = 0
        if last ~= stamp then flags, fields = 16, write('>I6', last) end
        if res == math.ceil(per / 60) then
          flags = flags + 4
        elseif res > 1 then
          flags, fields = flags + 8, fields .. write('>I6', res)
        end
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
        out = out .. body
      end
    end
    if unread ~= 0 and not failure then
      failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
        (v:byte(1) or 0) .. ', or cut short); remove it, or rename the limiter'
    end

    local repairs = not adds and sections and sections.changed
    if repairs then
      px = nil
      out, outs, expiry = '', 0, 0
      for _, s in ipairs(sections) do
        if s.total > 0 and s.last + s.per > now then
          local res, u, body = s.res, s.u, s.body
          per, closed, last, total, open, w = s.per, s.closed, s.last, s.total, s.open, s.w
          -- fits is how many bytes units take: 0 if every bucket holds 1.
          local fits = total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
          if fits > u then
            local wider = {}
            for i = 1, closed do
              local p = (i - 1) * (w + u) + 1
              local held = u == 0 and 1 or read(u == 1 and '>I1' or '>I3', body, p + w)
              wider[i] = body:sub(p, p + w - 1) .. write('>I' .. fits, held)
            end
            body = table.concat(wider)
            u = fits
          end
          local fields = ''
          flags = 0
          if last ~= stamp then flags, fields = 16, write('>I6', last) end
          if res == math.ceil(per / 60) then
            flags = flags + 4
          elseif res > 1 then
            flags, fields = flags + 8, fields .. write('>I6', res)
          end
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
          out = out .. body
          outs = outs + 1
          if last + per > expiry then expiry = last + per end
        end
      end
    end
    if writes and not failure and (adds or repairs) then
      if outs > 31 then
        failure = 'SLIDEGATE key ' .. key .. ' would count for more than 31 limits; wait until some are forgotten, or reset it'
      end
      if not failure then
        if grace or ahead > 0 or not px then px = string.format('%.0f', expiry - now + (grace or 0)) end
        failure = redis.pcall('SET', key, write('>BI6', 128 + outs, now) .. out, 'PX', px).err
      end
    end

    if ahead == limits then reply[2] = earliest end
    if not units then return failure and redis.error_reply(failure) or reply end
    if failure then reply[1] = failure end
    local start = (k - 1) * (lastSlot + 2)
    for b = 1, lastSlot + 2 do
      all[start + b] = reply[b]
      reply[b] = given[b]
    end
  end
  return all
end
