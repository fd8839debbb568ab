-- redis.lua replaces the server so that the same script can run on another Lua: it provides the
-- keys and, as of Lua 5.3, the library that Redis calls struct. Each line of input holds the keys of one call,
-- separated by commas, and the arguments, with bytes as %xx and an empty argument as %. redis.lua
-- answers with a line for each key: the reply, what was written, the value, and the texts of a list
-- of overrides.
local values = {['lua:foreign'] = 'hello', ['lua:list'] = {err = 'WRONGTYPE'}}
if string.pack then struct = {pack = string.pack, unpack = string.unpack} end -- as of Lua 5.3

-- A sorted set is a list of {name, score}, in order.
local function before(a, b) return a[2] < b[2] or a[2] == b[2] and a[1] < b[1] end

-- listed returns the i-th to the j-th member, in the form of a server's reply.
local function listed(set, i, j, scores)
  local all = {}
  for k = math.max(i, 1), math.min(j, #set) do
    all[#all + 1] = set[k][1]
    if scores then all[#all + 1] = ('%.0f'):format(set[k][2]) end
  end
  return all
end

-- inRange returns the members whose scores are from least to most.
local function inRange(set, least, most)
  local found = {}
  for _, member in ipairs(set) do
    if member[2] >= least + 0 and member[2] <= most + 0 then found[#found + 1] = member end
  end
  return found
end

-- remove removes the member with the given name, and returns it.
local function remove(set, name)
  for k, member in ipairs(set) do
    if member[1] == name then return table.remove(set, k) end
  end
end

local sorted = {}
function sorted.ZCARD(set) return #set end
function sorted.ZCOUNT(set, least, most) return #inRange(set, least, most) end
function sorted.ZRANGE(set, i, j, scores)
  return listed(set, (i < 0 and #set or 0) + i + 1, (j < 0 and #set or 0) + j + 1, scores)
end
function sorted.ZRANGEBYSCORE(set, least, most, _, offset, n) return listed(inRange(set, least, most), offset + 1, offset + n) end
function sorted.ZSCORE(set, name)
  for _, member in ipairs(set) do
    if member[1] == name then return ('%.0f'):format(member[2]) end
  end
  return false
end
function sorted.ZREM(set, ...)
  for _, name in ipairs({...}) do remove(set, name) end
end
function sorted.ZADD(set, ...)
  local added = {...}
  for i = 1, #added, 2 do
    remove(set, added[i + 1])
    set[#set + 1] = {added[i + 1], added[i] + 0}
  end
  table.sort(set, before)
end
function sorted.PEXPIRE(set) return #set > 0 and 1 or 0 end

redis = {error_reply = function(text) return {err = text} end}
function redis.call(command, key, new, ...)
  if sorted[command] then
    values[key] = values[key] or {}
    return sorted[command](values[key], new, ...)
  end
  local was = values[key] or false
  if command == 'GET' then return was end
  values[key] = command == 'SET' and new or nil
  return command == 'SET' and {ok = 'OK'} or was and 1 or 0
end
redis.pcall = redis.call

local function hex(s) return (s:gsub('.', function(c) return ('%02x'):format(c:byte()) end)) end

local function report(text, part, wrote, stored, texts)
  if text then return print('error', text) end
  for i, n in ipairs(part) do part[i] = ('%.0f'):format(n) end
  for i, s in ipairs(texts) do texts[i] = hex(s) .. ',' end
  print('reply', table.concat(part, ' '), wrote[1] or '', wrote[5] or '', hex(stored or ''), table.concat(texts))
end

-- plain decodes an argument in the input.
local function plain(word)
  return (word:gsub('%%(%x?%x?)', function(digits) return digits == '' and '' or string.char(tonumber(digits, 16)) end))
end

local decide = assert(loadfile(arg[1]))
for line in io.lines() do
  KEYS, ARGV = {}, {}
  local keys, words = line:match('(%S+) (.*)')
  for key in keys:gmatch('[^,]+') do KEYS[#KEYS + 1] = key end
  for word in words:gmatch('%S+') do ARGV[#ARGV + 1] = plain(word) end
  local answers = decide()
  if type(answers[1]) == 'string' then print('texts', answers[1], answers[2], answers[3]) end
  for k = 1, type(answers[1]) == 'string' and 0 or #KEYS do
    local part, wrote, stored, texts = (table.unpack or unpack)(answers[k] or {{}})
    report(answers.err or type(part[1]) == 'string' and part[1], part, wrote, stored, texts)
  end
  io.flush()
end
