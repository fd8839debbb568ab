--- Decides according to decaying levels, in one script with all verbs.
--- Verbs: allow count peek some countsome each counteach inspect refund reset.
-- include ar1-contract

-- include struct
local read, write, exp, log = struct.unpack, struct.pack, math.exp, math.log
local REST = 0.25 -- a level below it counts as 0

local A, base = ARGV, #KEYS
local op, n, unit, units, looks, counting, singles, rows, levels, others, since -- the verb
local now, lastSlot, reply, given
do
  local valid, most
  -- include ar1-verb
  -- include ar1-clock
  -- include ar1-limits
end

local all = units and {} -- the replies to several events
for k = 1, base do
  local key, failure, changed = KEYS[k]
  if units then
    -- include ar1-event
  end
  local allowed, out, outs, far = not levels, '', 0, 0
  do
    -- include ar1-record
    if op == 'reset' and unread >= 0 then return {redis.call('DEL', key)} end
    if unread > 0 then
      -- include ar1-levels
    end
    -- include foreign
  end
  if failure and not units then return redis.error_reply(failure) end

  if allowed then reply[1] = 1 end
  local adds, before, rounds = (allowed or counting) and not since
  if singles and adds then
    -- include ar1-singles
  end
  local writes, per1, x1 = (adds or changed) and not looks
  -- include ar1-replies
  if levels then
    -- include ar1-inspect
  end
  if writes and not failure then
    -- include ar1-store
  end
  if not units then
    -- include ar1-reply
  end
  -- include several
end
return all
