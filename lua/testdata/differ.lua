-- differ.lua checks that new scripts behave like an old one. It makes random calls of both, on two
-- separate sets of keys, and compares the replies, the errors, the writes and the records. Usage:
--   lua5.1 differ.lua SEED CALLS OLD.lua verb,verb,...=NEW.lua verb=OTHER.lua ...
-- Each verb is compared on the script that is given for it; a verb without one is never called. The
-- first difference ends the run with exit code 1. Otherwise, the run ends with a count of the calls.
--
-- Not compared: the reads, the texts of Lua's own errors, and some and each of several keys.
local here = arg[0]:match('.*/') or ''
struct = dofile(here .. 'struct.lua')

-- The server. Both scripts run in this process. store and log are those of the script that runs.
--   store    the values by key: a string or, for a list, a table
--   log      the writes, in order, including those that were refused
--   refused  the keys that this call cannot write, with the error
local store, log, refused, now, micros = {}, {}, {}, 0, 0

local commands = {}
function commands.GET(key)
  local v = store[key]
  if type(v) == 'table' then return {err = 'WRONGTYPE Operation against a key holding the wrong kind of value'} end
  return v or false
end
function commands.TIME()
  local ms = now % 1000
  return {('%.0f'):format((now - ms) / 1000), ('%.0f'):format(ms * 1000 + micros)}
end
function commands.SET(key, value, word, px, more)
  px = type(px) == 'number' and ('%.17g'):format(px) or px
  log[#log + 1] = table.concat({'SET', key, value, tostring(word), tostring(px), more and 'more' or ''}, ' ')
  if word ~= 'PX' or more or not px:match('^[1-9]%d*$') then return {err = 'ERR invalid expire time'} end
  if refused[key] then return {err = refused[key]} end
  store[key] = value
  return {ok = 'OK'}
end
function commands.DEL(key, more)
  log[#log + 1] = 'DEL ' .. key .. (more and ' more' or '')
  if refused[key] then return {err = refused[key]} end
  local was = store[key]
  store[key] = nil
  return was and 1 or 0
end

redis = {error_reply = function(text) return {err = text} end}
function redis.pcall(name, ...) return commands[name](...) end
function redis.call(name, ...)
  local reply = commands[name](...)
  if type(reply) == 'table' and reply.err then error(reply) end
  return reply
end

-- Random numbers: the same in each version of Lua.
local state = (tonumber(arg[1]) * 7919 + 12345) % 2147483646 + 1
local function draw()
  state = state * 16807 % 2147483647
  return state
end
for _ = 1, 20 do draw() end

-- below returns a random integer from 0 to n - 1.
local function below(n)
  if n < 1000000 then return draw() % n end
  return math.floor((draw() + draw() % 2097152 / 2097152) / 2147483648 * n)
end

local function between(a, b) return a + below(b - a + 1) end
local function chance(percent) return draw() % 1000 < percent * 10 end
local function pick(list) return list[draw() % #list + 1] end
local function digits(n) return ('%.0f'):format(n) end

-- The history. An episode is a few events, limits and times that many calls have in common.
--   events, pers    the keys, and the Pers from which each call takes some
--   max, width      the Max and the Resolution that a Per usually has
--   times, waits    the times and waits of recent replies
--   left            how many calls are left
--   slow            time passes in small steps, so that there are many buckets, of which this percentage
--                   hold one unit
local episode
local most = 9007199254740992
local edges = {1, 2, 59, 60, 61, 65535, 65536, 16777215, 16777216, 4294967295, 4294967296, 17592186044416}
local ranges = {{1, 20}, {1, 1000}, {1000, 65535}, {65536, 16777215}, {16777216, 4294967295}, {4294967296, 17592186044416}}

local function somePer(range)
  if chance(12) then return pick(edges) end
  return between(range[1], range[2])
end

local function someMax()
  local kind = below(10)
  if kind < 3 then return between(1, 5) end
  if kind < 5 then return between(1, 60) end
  if kind < 7 then return between(250, chance(50) and 260 or 300) end
  if kind == 7 then return between(1, 70000) end
  if kind == 8 then return between(16777213, 16777219) end
  return pick({most, most - 1, between(1, most)})
end

local function someWidth(per)
  return pick({1, 1, math.ceil(per / 60), math.ceil(per / 60), between(1, per), math.ceil(per / 7), per})
end

local function newEpisode(stores)
  stores[1], stores[2] = {}, {}
  episode = {events = {}, pers = {}, max = {}, width = {}, times = {}, waits = {}, left = between(20, 250), slow = chance(4) and pick({100, 99})}
  local e, range = episode, pick(ranges)
  for i = 1, between(1, 5) do e.events[i] = 'name:{' .. i .. '}:w' end
  local wanted, mixed = chance(8) and between(20, 45) or between(1, 5), chance(50)
  if e.slow then
    range, e.left, wanted, e.events = pick({{3000, 65535}, {65536, 200000}, {65536, 200000}, {5000000000, 5000100000}}), 700, between(1, 2), {e.events[1]}
  end
  for _ = 1, wanted do
    local per = somePer(mixed and not e.slow and pick(ranges) or range)
    if not e.max[per] then
      e.pers[#e.pers + 1] = per
      e.max[per], e.width[per] = e.slow and between(250, 900) or someMax(), e.slow and 1 or someWidth(per)
    end
  end
  now = pick({1700000000000 + below(1000000000), 1700000000000 + below(1000000000), below(1000000), 140737488355327 - below(1000000)})
end

-- passTime moves the clock, often to where a unit is forgotten, and sometimes back.
local function passTime()
  local e = episode
  local per, kind = pick(e.pers), below(100)
  if e.slow and chance(99.7) then now = now + (e.slow == 100 and 1 or 0) + below(5)
  elseif kind < 18 then now = now + 0
  elseif kind < 30 then now = now + 1
  elseif kind < 45 then now = now + below(10)
  elseif kind < 58 then now = now + below(math.ceil(per / 7))
  elseif kind < 66 then now = now + math.ceil(per / 60)
  elseif kind < 74 then now = now + below(per)
  elseif kind < 78 then now = now + per + between(-1, 1)
  elseif kind < 80 then now = now + between(2, 4) * per
  elseif kind < 90 then now = now + (#e.waits > 0 and pick(e.waits) + between(-1, 1) or 0)
  elseif kind < 94 then now = now - below(10)
  elseif kind < 97 then now = now - below(per)
  else now = now - per - below(2 * per) end
  now = math.min(math.max(now, 0), 140737488355327)
  micros = below(1000)
end

-- addLimits appends random limits, and returns their number and smallest Max. The Pers of an episode are
-- shuffled first, so that calls take different ones.
local function addLimits(args)
  local e = episode
  local n = math.min(#e.pers, chance(70) and between(1, 3) or chance(80) and between(1, 4) or 31)
  if chance(20) then
    for i = #e.pers, 2, -1 do
      local j = between(1, i)
      e.pers[i], e.pers[j] = e.pers[j], e.pers[i]
    end
  end
  local least = most
  for i = 1, n do
    local per = e.pers[i]
    local max = chance(e.slow or 92) and e.max[per] or someMax()
    local width = chance(e.slow and 99.9 or 92) and e.width[per] or someWidth(per)
    args[#args + 1], args[#args + 2], args[#args + 3] = digits(per), digits(max), digits(width)
    least = math.min(least, max)
  end
  return n, least
end

local function someUnits(least)
  if episode.slow then return chance(episode.slow) and 1 or 2 end
  local kind = below(20)
  if kind < 11 then return 1 end
  if kind < 15 then return between(1, math.min(least, 5)) end
  if kind < 17 then return between(1, math.min(least, 300)) end
  if kind < 18 then return math.min(least, between(250, 260)) end
  return kind == 18 and between(1, least) or least
end

local function someTime() return chance(episode.simulated or 50) and digits(now) or '' end

-- since returns the last argument of a refund.
local function since()
  local times = episode.times
  return digits(#times > 0 and chance(92) and pick(times) or math.max(0, now + between(-1000, 10)))
end

-- many: the verbs that may have several keys with the same limits.
local many = {allow = true, count = true}

local function plain(verb)
  local args, keys, limits = {verb, someTime()}, {pick(episode.events)}, {}
  local n, least = addLimits(limits)
  for k = 2, many[verb] and chance(episode.slow and 1 or 30) and between(2, 5) or 1 do keys[k] = pick(episode.events) end
  for _ = 1, #keys do
    local units = someUnits((verb == 'some' or verb == 'countsome') and chance(30) and most or least)
    if verb == 'some' or verb == 'countsome' or verb == 'counteach' then
      units = not episode.slow and chance(50) and between(1, 12) or units
      if verb == 'counteach' then units = chance(1) and pick({4096, 4097}) or math.min(units, 300) end
    elseif verb == 'refund' and chance(50) then
      units = between(1, 5)
    end
    args[#args + 1] = digits(units)
  end
  if verb == 'inspect' and chance(10) then limits = {} end
  for i = 1, #limits do args[#args + 1] = limits[i] end
  if verb == 'refund' then args[#args + 1] = since() end
  return keys, args
end

-- grouped returns a call of joint or undo. Each event occurs at most once.
local function grouped(verb)
  local e, args, keys, limits, least = episode, {verb, someTime()}, {}, {}, {}
  local size = between(1, math.min(#e.events, 4))
  local shift = below(#e.events)
  for k = 1, size * between(1, math.floor(#e.events / size)) do keys[k] = e.events[(k + shift) % #e.events + 1] end
  for position = 1, size do
    local at = #limits + 1
    limits[at] = ''
    if verb == 'undo' and chance(5) then
      limits[at], least[position] = '0', most
    else
      local n
      n, least[position] = addLimits(limits)
      limits[at] = digits(n)
    end
  end
  for k = 1, #keys do
    local units = someUnits(least[(k - 1) % size + 1])
    if verb == 'undo' and chance(episode.slow and 2 or 20) then units = 0 end
    args[#args + 1] = digits(units)
    if verb == 'undo' then args[#args + 1] = since() end
  end
  args[#args + 1] = digits(size)
  for i = 1, #limits do args[#args + 1] = limits[i] end
  return keys, args
end

local makers = {allow = plain, count = plain, peek = plain, some = plain, countsome = plain, counteach = plain,
  inspect = plain, refund = plain, reset = plain, joint = grouped, undo = grouped}
local weights = {allow = 26, count = 10, peek = 8, some = 9, countsome = 8, counteach = 7, inspect = 4, refund = 10,
  reset = 1, joint = 12, undo = 6}

local bad = {'', '0', '-1', '1.5', 'nan', 'inf', 'x', '-0', '4097', '9007199254740992', '9007199254740993',
  '18014398509481984', '17592186044416', '17592186044417', '140737488355327', '140737488355328', '60', '2', '3', '32'}
local wrongVerbs = {'', 'alow', 'ALLOW', '1'}

-- spoil makes a call invalid, most of the time. It does not turn a verb into another one.
local function spoil(keys, args)
  local kind = below(10)
  if kind < 5 then args[between(2, #args)] = pick(bad)
  elseif kind == 5 then table.remove(args, between(2, #args))
  elseif kind == 6 then table.insert(args, between(2, #args + 1), pick(bad))
  elseif kind == 7 then
    for i = #args, between(1, #args), -1 do args[i] = nil end
  elseif kind == 8 then
    local from = between(2, #args)
    for i = from, math.min(#args, from + 95) do args[#args + 1] = args[i] end
  elseif args[1] ~= 'some' and chance(50) then
    keys[#keys + 1] = pick(episode.events)
  else
    args[1] = pick(wrongVerbs)
  end
end

local function randomBytes(n)
  local bytes = {}
  for i = 1, n do bytes[i] = string.char(below(256)) end
  return table.concat(bytes)
end

-- someSection returns a record of one section with an own time and a Resolution in a field, about as
-- full as the Max. Its buckets can be in any order.
local function someSection(per)
  local u, w = below(4), per < 65536 and 2 or per < 16777216 and 3 or per < 4294967296 and 4 or 6
  local width, closed, last = ({0, 1, 3, 7})[u + 1], below(4), math.max(now - below(per), 0)
  local open = math.min(between(1, episode.max[per]), ({1, 240, 16777000, most})[u + 1])
  local total = u == 3 and chance(20) and most + 2 * below(3) or open + 3 * closed - (chance(5) and 4 or 0)
  local flags, fields = u + (chance(8) and 12 or 8) + 16, struct.pack('>I6I6', last, between(1, per))
  if u > 0 then
    total = math.max(total, 0)
    fields = fields .. struct.pack(({'>I1I1', '>I3I3', '>I7I7'})[u], total, open)
  end
  for i = 1, closed do
    local t = math.max(last - (chance(50) and i or 1) * below(math.ceil(per / 3)), 0)
    fields = fields .. struct.pack('>I' .. w, t % 256 ^ w) .. (u > 0 and struct.pack('>I' .. width, 3) or '')
  end
  local head = w == 6 and struct.pack('>BI2I6', 32 + flags, closed, per) or struct.pack('>BBI4', flags, closed, per)
  return struct.pack('>BI6', 129, now) .. head .. fields
end

-- forge returns a value that may be no record, or one that calls seldom leave.
local function forge(v)
  local kind = below(14)
  if kind == 0 then return 'hello' end
  if kind == 1 then return {} end
  if kind == 2 then return pick({'', string.rep('\255', 40), string.rep('\0', 40), '{"count":1,"until":1700006400000}', randomBytes(between(1, 40))}) end
  if kind == 3 and chance(5) then -- as many buckets as fit
    local per, n, last = episode.pers[1], pick({65534, 65535, 65535}), math.max(now - between(1, 9), 0)
    local w = per < 65536 and 2 or per < 16777216 and 3 or per < 4294967296 and 4 or 6
    return struct.pack('>BI6BI2I6', 129, last, 32, n, per) .. string.rep(struct.pack('>I' .. w, last % 256 ^ w), n)
  end
  if kind == 4 or kind == 12 then return someSection(pick(episode.pers)) end
  if type(v) ~= 'string' or #v < 2 then return 'x' end
  local at = between(1, #v)
  if kind == 5 then return v:sub(1, at) end
  if kind == 6 then return v .. randomBytes(between(1, 8)) end
  if kind == 7 then return string.char((v:byte() + 1) % 256) .. v:sub(2) .. v:sub(8) end -- each Per twice
  if kind == 8 then return string.char((v:byte() + 1) % 256) .. v:sub(2) .. struct.pack('>BBI4', 0, 0, pick(episode.pers) % 4294967296) end
  if kind == 9 then -- another T
    return v:sub(1, 1) .. struct.pack('>I6', math.max(0, now + between(-1000, 1000))) .. v:sub(8)
  end
  if kind == 10 then at = math.min(#v, 8 + below(8)) end -- the first head, with its flags
  return v:sub(1, at - 1) .. string.char(kind == 11 and (v:byte(at) + 1) % 256 or below(256)) .. v:sub(at + 1)
end

-- Comparison.

-- same reports whether two replies, or parts of them, are equal. A reply ends before its first nil.
local function same(a, b)
  if type(a) ~= 'table' or type(b) ~= 'table' then return a == b or a ~= a and b ~= b end
  if a.err ~= b.err or a.ok ~= b.ok then return false end
  local i = 1
  while a[i] ~= nil or b[i] ~= nil do
    if a[i] ~= b[i] and not same(a[i], b[i]) then return false end
    i = i + 1
  end
  return true
end

-- refuses reports whether a script rejects its arguments: by its own error or, where one of them is not
-- a number, by Lua's. Which of two bad arguments a script sees first is not compared.
local function refuses(ok, reply)
  return not ok or type(reply) == 'table' and reply.err and reply.err:find('(see the header', 1, true)
end

-- meaningful removes what has no meaning from a reply: the other integers of an event that fails.
local function meaningful(reply, keys, args)
  local start, at = 0, #keys + 4
  for k = 1, #reply > 0 and #keys or 0 do
    local width = #reply / #keys
    if args[1] == 'joint' then
      if (k - 1) % args[#keys + 3] == 0 then at = #keys + 4 end
      width = 2 + 3 * args[at]
      at = at + 1 + 3 * args[at]
    end
    for i = start + 2, type(reply[start + 1]) == 'string' and start + width or 0 do reply[i] = 0 end
    start = start + width
  end
  return reply
end

-- text returns a value as a person reads it: bytes that are not printable as \ddd.
local function text(v)
  if type(v) == 'table' and v.err then return 'error ' .. text(v.err) end
  if type(v) == 'table' then
    local all = {}
    for i, part in ipairs(v) do all[i] = text(part) end
    return '{' .. table.concat(all, ', ') .. '}'
  end
  if type(v) == 'number' then return ('%.17g'):format(v) end
  if type(v) ~= 'string' then return tostring(v) end
  return "'" .. v:gsub("[^ -~]", function(c) return ('\\%03d'):format(c:byte()) end) .. "'"
end

local stores, logs = {{}, {}}, {{}, {}}

local function stop() error('more than 50,000,000 instructions') end

-- run runs a script on its keys, and returns whether it ran to its end, and its reply or error.
local function run(script, i)
  store, log = stores[i], {}
  debug.sethook(stop, '', 50000000)
  local ok, reply = pcall(script)
  debug.sethook()
  logs[i] = log
  return ok, reply
end

local function show(name, ok, reply, writes)
  print(name .. (ok and ' replies ' or ' raises ') .. text(reply))
  for _, write in ipairs(writes) do print('  ' .. text(write)) end
end

-- Usage and scripts. As on a server, a script can neither create a global nor read one that does not exist.
local old, new, verbs = assert(loadfile(arg[3])), {}, {}
for i = 4, #arg do
  local list, path = arg[i]:match('^([^=]+)=(.+)$')
  local script = assert(loadfile(path))
  for verb in list:gmatch('[^,]+') do
    assert(makers[verb], 'unknown verb ' .. verb)
    new[verb] = script
    for _ = 1, weights[verb] do verbs[#verbs + 1] = verb end
  end
end
setmetatable(_G, {
  __newindex = function(_, name) error('a script creates the global ' .. name) end,
  __index = function(_, name) error('a script reads the global ' .. name .. ', which does not exist') end,
})

-- seen counts the outcomes of a verb: raised, errors, denied and allowed (for inspect, refund, reset and
-- undo: 0 and 1 in the reply).
local seen = {}
local function classify(verb, ok, reply, keys)
  local s = seen[verb] or {calls = 0, raised = 0, errors = 0, denied = 0, allowed = 0, writes = 0}
  seen[verb], s.calls = s, s.calls + 1
  if #logs[1] > 0 then s.writes = s.writes + 1 end
  if not ok then s.raised = s.raised + 1
  elseif reply.err then s.errors = s.errors + 1
  elseif reply[1] == 0 then s.denied = s.denied + 1
  elseif type(reply[1]) == 'string' then s.errors = s.errors + 1
  else s.allowed = s.allowed + 1 end
  if ok and #keys == 1 and type(reply[4]) == 'number' and verb ~= 'inspect' then
    local e = episode
    e.times[#e.times % 8 + 1] = reply[2]
    if #e.waits > 5 then e.waits = {} end
    for i = 4, 5 do
      if reply[i] > 0 then e.waits[#e.waits + 1] = reply[i] end
    end
  end
end

local plainKeys
for call = 1, tonumber(arg[2]) do
  if not episode or episode.left == 0 then
    newEpisode(stores)
    episode.simulated = pick({0, 100, 50})
  end
  episode.left = episode.left - 1
  passTime()
  local verb = pick(verbs)
  if episode.slow and (verb == 'reset' or verb == 'undo') then verb = pick(verbs) end
  local keys, args = makers[verb](verb)
  if chance(episode.slow and 0.3 or 4) then spoil(keys, args) end

  -- Replace a value, often for this call only.
  local forged, before, value = chance(8) and pick(keys)
  if forged then
    before = stores[1][forged]
    value = forge(before)
    stores[1][forged], stores[2][forged] = value, value
  end
  refused = {}
  if chance(1.5) then
    local all = chance(50)
    for _, key in ipairs(keys) do
      if all or chance(50) then refused[key] = all and 'OOM command not allowed' or 'NOPERM no permissions' end
    end
  end

  local had = {}
  for i, key in ipairs(keys) do had[i] = stores[1][key] or false end
  rawset(_G, 'KEYS', keys)
  rawset(_G, 'ARGV', args)
  local oldOK, oldReply = run(old, 1)
  local newOK, newReply = run(new[verb], 2)
  local equal = oldOK and newOK and same(meaningful(oldReply, keys, args), meaningful(newReply, keys, args)) or
    refuses(oldOK, oldReply) and refuses(newOK, newReply)
  equal = equal and #logs[1] == #logs[2]
  for i = 1, #logs[1] do equal = equal and logs[1][i] == logs[2][i] end
  for _, key in ipairs(keys) do equal = equal and stores[1][key] == stores[2][key] end
  if not equal then
    print(('seed %s, call %d, at %s'):format(arg[1], call, digits(now)))
    print('arguments ' .. text(args))
    for i, key in ipairs(keys) do
      print(text(key) .. ' held ' .. text(had[i]) .. (refused[key] and ', and cannot be written' or ''))
    end
    show(arg[3], oldOK, oldReply, logs[1])
    show('the new script', newOK, newReply, logs[2])
    os.exit(1)
  end
  classify(verb, oldOK, oldReply, keys)
  if forged and (stores[1][forged] == value or episode.slow or chance(70)) then
    stores[1][forged], stores[2][forged] = before, before
  end
end

print(('%-10s%9s%9s%9s%9s%9s%9s'):format('verb', 'calls', 'allowed', 'denied', 'errors', 'raised', 'writing'))
for verb, s in pairs(seen) do
  print(('%-10s%9d%9d%9d%9d%9d%9d'):format(verb, s.calls, s.allowed, s.denied, s.errors, s.raised, s.writes))
end
