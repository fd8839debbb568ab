-- setspy.lua wraps inflight.lua for tests, as spy.lua wraps the other scripts. It returns three
-- texts: the reply, the commands that wrote, and the sorted set. It fails if the script uses
-- another key, reads after a write, or writes before an error, or if the reply contains anything
-- except integers and, for inspect, strings.
local server, wrote = redis, {}
local redis = {error_reply = server.error_reply}
local writes = {ZADD = true, ZREM = true, PEXPIRE = true, DEL = true}

for _, ask in ipairs({'call', 'pcall'}) do
  redis[ask] = function(command, key, ...)
    assert(command == 'TIME' or key == KEYS[1], 'another key than that of the event')
    assert(#wrote == 0 or writes[command], 'a read after a write')
    if writes[command] then wrote[#wrote + 1] = command == 'PEXPIRE' and ('PEXPIRE %.0f'):format((...)) or command end
    return server[ask](command, key, ...)
  end
end

local function script()
  --SCRIPT--
end

local reply = script()
if reply.err then
  assert(#wrote == 0, 'a write before an error')
  return reply
end
local function shown(name)
  return (name:gsub('[^!-~]', function(c) return ('\\%02x'):format(c:byte()) end))
end
for i, part in ipairs(reply) do
  if type(part) == 'number' then
    assert(part % 1 == 0, 'a number that is not an integer')
    reply[i] = ('%.0f'):format(part)
  else
    assert(ARGV[1] == 'inspect' and type(part) == 'string', 'a reply that is not an integer')
    reply[i] = part == '' and '-' or shown(part)
  end
end
local members, set = {}, server.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #set, 2 do members[#members + 1] = shown(set[i]) .. '=' .. ('%.0f'):format(set[i + 1]) end
return {table.concat(reply, ' '), table.concat(wrote, ', '), table.concat(members, ' ')}
