--- window.lua with all of its verbs.
-- include contract

-- include names

-- include encode

-- include arguments

-- include clock

-- include limits

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

  -- include record
  while pos <= len or undecided > 0 or again do
    -- include again
    slot = slot + 3
    local res, u, short = 1, 0, 0
    if pos <= len then
      -- include section
      -- include slot
    else
      while slot > lastSlot or reply[slot] >= 0 do slot = slot % lastSlot + 3 end
      per = -reply[slot]
      last = now - per -- old enough to be forgotten
    end

    -- include turnback

    -- include forget
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
      -- include decide
      -- include write
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

  -- include inspect

  local counted, countedPX -- what a joint call writes if all events are counted
  if joint and counts and not failure then
    if dated or not px then px = string.format('%.0f', expiry - now + grace) end
    counted, countedPX = write('>BI6', 128 + outs, newT) .. out, px
    if outs > 31 then failure = 'SLIDEGATE key ' .. key .. full end
  end

  -- Rewrite the whole record for a refund, or to repair a timestamp when nothing is counted.
  if refund or changed and (joint or not counts) then
    out, outs, expiry, px = '', 0, 0, nil
    -- include undo
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
    -- include store
  end

  if not allowed then reply[1] = 0 end
  if ahead == limits then reply[2] = earliest end
  if not units then
    if failure then return redis.error_reply(failure) end
    if refund then return {changed and 1 or 0} end
    if not singles then return reply end
    -- include rows
  end

  -- include several

  -- include joint
end
return all
