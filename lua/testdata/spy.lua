-- spy.lua wraps a script for tests. It runs the script unchanged. For each key it returns the key's
-- part of the reply, the command with which the script wrote the key, and the value that the script
-- left. It fails if the script reads or writes keys out of order, writes a key twice, or writes
-- before an error. It also fails if the reply contains anything except integers, the errors of
-- events that fail among others, and the strings of a list of overrides, which it returns
-- separately.
local server, k, wrote, stored = redis, 0, {}, {}
local redis = {error_reply = server.error_reply}

for _, ask in ipairs({'call', 'pcall'}) do
  redis[ask] = function(command, key, ...)
    local answer = server[ask](command, key, ...)
    if command == 'GET' then
      k = k + 1
      wrote[k], stored[k] = {}, answer
    elseif command ~= 'TIME' then
      assert(#wrote[k] == 0, 'a second write')
      wrote[k], stored[k] = {command, key, ...}, command == 'SET' and ...
    end
    assert(command == 'TIME' or key == KEYS[k], 'another key than that of the event')
    return answer
  end
end

local function script()
  --SCRIPT--
end

local reply = script()
if reply.err then
  for _, command in ipairs(wrote) do assert(#command == 0, 'a write before an error') end
  return reply
end
local left, answers, integers = {}, {}, #reply / #KEYS
for k, key in ipairs(KEYS) do
  local part, texts = {}, {}
  for i = 1, integers do
    local n = reply[(k - 1) * integers + i]
    local into = ARGV[1] == 'list' and type(n) == 'string' and texts or part
    into[#into + 1] = n
    if into == texts then
      assert(i > 3, 'a string in place of a number')
    elseif i == 1 and type(n) == 'string' then
      assert(#KEYS > 1 and #wrote[k] == 0, 'a string that is not an error, or a write before it')
    else
      assert(type(n) == 'number' and n % 1 == 0, 'a reply that is not an integer')
    end
  end
  left[key], answers[k] = stored[k], {part, wrote[k], type(stored[k]) == 'string' and stored[k], texts}
end
for key, value in pairs(left) do
  assert(type(value) == 'table' or server.call('GET', key) == value, 'a value that the script did not write')
end
return answers
