-- count.lua prints how many VM instructions a call of window.lua takes, for each verb. Usage:
--   lua5.1 count.lua SCRIPT.lua verb,verb,...=OTHER.lua verb=ANOTHER.lua ...
-- SCRIPT.lua makes the calls that come before, and is counted for each verb without a script of its
-- own.
--
-- Only instructions in the script's own functions count, and none in the stubs that replace the
-- server. So the count depends neither on the machine nor on the clock. It does depend on the
-- version of Lua: servers run Lua 5.1.
--
-- Each call that is counted is the fifth on its events. Four calls of allow with one unit come
-- before, one second apart. All use the clock of the server.
local here = arg[0]:match('.*/') or ''
struct = dofile(here .. 'struct.lua')

local values, now

redis = {error_reply = function(text) return {err = text} end}
function redis.call(command, key, value)
  if command == 'TIME' then return {('%d'):format(now / 1000), ('%d'):format(now % 1000 * 1000 + 456)} end
  local was = values[key] or false
  if command == 'GET' then return was end
  values[key] = command == 'SET' and value or nil
  return command == 'SET' and {ok = 'OK'} or was and 1 or 0
end
redis.pcall = redis.call

local all, scripts = assert(loadfile(arg[1])), {}
for i = 2, #arg do
  local list, path = arg[i]:match('^([^=]+)=(.+)$')
  for verb in list:gmatch('[^,]+') do scripts[verb] = assert(loadfile(path)) end
end

local function ask(script, keys, args)
  KEYS, ARGV = keys, args
  local reply = script()
  assert(not reply.err, reply.err)
  return reply
end

-- counted makes a call, and returns its instructions and its reply.
local function counted(script, keys, args)
  local n, source = 0, debug.getinfo(script, 'S').source
  debug.sethook(function()
    if debug.getinfo(2, 'S').source == source then n = n + 1 end
  end, '', 1)
  local reply = ask(script, keys, args)
  debug.sethook()
  return n, reply
end

-- scenario prints what a call takes, and its first integer. args are words, separated by spaces, in which
-- NOW is an empty argument and THIRD the time of the third call.
local function scenario(name, limits, keys, args)
  values, now = {}, 1700000000123
  local words, list = {'allow', '', '1'}, {}
  for word in limits:gmatch('%S+') do words[#words + 1] = word end
  for key in keys:gmatch('%S+') do list[#list + 1] = key end
  for _ = 1, 4 do
    for _, key in ipairs(list) do ask(all, {key}, words) end
    now = now + 1000
  end
  local call = {}
  for word in args:gsub('LIMITS', limits):gmatch('%S+') do
    call[#call + 1] = word == 'NOW' and '' or word == 'THIRD' and ('%.0f'):format(now - 2000) or word
  end
  local n, reply = counted(scripts[call[1]] or all, list, call)
  print(('%-24s%6d  reply %d'):format(name, n, reply[1]))
end

-- One limit: 10 an hour, to the millisecond. Four: 4 an hour, so the fifth call is denied. Three: 10 in
-- 5 s, 50 an hour and 200 a day, whose Resolution is Per/60.
local one, four = '3600000 10 1', '3600000 4 1'
local three = '5000 10 1 3600000 50 1 86400000 200 1440000'
scenario('allow', one, 'a', 'allow NOW 1 LIMITS')
scenario('allow, denied', four, 'a', 'allow NOW 1 LIMITS')
scenario('allow, 3 limits', three, 'a', 'allow NOW 1 LIMITS')
scenario('allow, 3 limits, denied', '5000 10 1 3600000 50 1 86400000 4 1', 'a', 'allow NOW 1 LIMITS')
scenario('allow, 3 keys', one, 'a b c', 'allow NOW 1 1 1 LIMITS')
scenario('count', one, 'a', 'count NOW 1 LIMITS')
scenario('count, denied', four, 'a', 'count NOW 1 LIMITS')
scenario('peek', one, 'a', 'peek NOW 1 LIMITS')
scenario('some', one, 'a', 'some NOW 5 LIMITS')
scenario('some, 6 of 8', one, 'a', 'some NOW 8 LIMITS')
scenario('countsome', one, 'a', 'countsome NOW 5 LIMITS')
scenario('counteach', one, 'a', 'counteach NOW 5 LIMITS')
scenario('inspect', one, 'a', 'inspect NOW 1 LIMITS')
scenario('refund', one, 'a', 'refund NOW 1 LIMITS THIRD')
scenario('reset', one, 'a', 'reset NOW 1 LIMITS')
scenario('joint, 2 keys', one, 'a b', 'joint NOW 1 1 2 1 LIMITS 1 LIMITS')
scenario('joint, 2 keys, denied', four, 'a b', 'joint NOW 1 1 2 1 3600000 10 1 1 LIMITS')
scenario('undo, 2 keys', one, 'a b', 'undo NOW 1 THIRD 1 THIRD 2 1 LIMITS 1 LIMITS')
