-- spy.lua wraps a script for tests. It runs the script as it is, and returns its reply, the command
-- by which it wrote, and the value that it left. It fails if the script writes twice, writes before
-- an error, or replies anything except whole numbers.
local server, wrote = redis, {}
local redis = {error_reply = server.error_reply}

for _, ask in ipairs({'call', 'pcall'}) do
  redis[ask] = function(...)
    if ({...})[1] ~= 'TIME' and ({...})[1] ~= 'GET' then
      assert(#wrote == 0, 'a second write')
      wrote = {...}
    end
    return server[ask](...)
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
for i = 1, #reply do assert(type(reply[i]) == 'number' and reply[i] % 1 == 0, 'a reply that is no integer') end
return {reply, wrote, server.call('GET', KEYS[1])}
