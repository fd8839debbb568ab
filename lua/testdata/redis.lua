-- redis.lua stands in for the server where the same script runs on another Lua: one key, and the library that Redis calls
-- struct. Each line of its input is the arguments of one call; it answers with the reply, what was written, and the value.
local value = false
struct = {pack = string.pack, unpack = string.unpack}

local function widths(format) return format:sub(2):gsub('B', 'I1'):gmatch('I(%d)') end

if not string.pack then -- before Lua 5.3
  function struct.pack(format, ...)
    local bytes, i = {}, 0
    for width in widths(format) do
      i = i + 1
      local n = ({...})[i]
      assert(n >= 0 and n < 256 ^ width and n % 1 == 0, 'a number that does not fit')
      for k = width - 1, 0, -1 do bytes[#bytes + 1] = string.char(math.floor(n / 256 ^ k) % 256) end
    end
    return table.concat(bytes)
  end
  function struct.unpack(format, s, at)
    local numbers = {}
    at = at or 1
    for width in widths(format) do
      local n = 0
      for k = at, at + width - 1 do n = n * 256 + assert(s:byte(k), 'data too short') end
      at, numbers[#numbers + 1] = at + width, n
    end
    numbers[#numbers + 1] = at
    return (table.unpack or unpack)(numbers)
  end
end

redis = {error_reply = function(text) return {err = text} end}
function redis.call(command, _, new)
  if command == 'GET' then return value end
  local was = value
  value = command == 'SET' and new
  return was and 1 or 0
end
redis.pcall = redis.call

local function hex(s) return (s:gsub('.', function(c) return ('%02x'):format(c:byte()) end)) end

local decide = assert(loadfile(arg[1]))
KEYS = {'KEY'}
for line in io.lines() do
  ARGV = {}
  for word in line:gmatch('%S+') do ARGV[#ARGV + 1] = word end
  local answer = decide()
  if answer.err then
    print('error', answer.err)
  else
    for i, n in ipairs(answer[1]) do answer[1][i] = ('%.0f'):format(n) end
    print('reply', table.concat(answer[1], ' '), answer[2][1] or '', answer[2][5] or '', hex(answer[3] or ''))
  end
  io.flush()
end
