-- struct.lua returns the library that Redis calls struct, for the big endian formats of the
-- scripts: integers of 1 to 7 bytes. Since Lua 5.3, Lua has the same functions. For Lua 5.1,
-- struct.lua compiles one function per format, because tests call them millions of times.
if string.pack then return {pack = string.pack, unpack = string.unpack} end

-- widths returns the number of bytes of each field of a format, and the number of all bytes.
local function widths(format)
  local list, size = {}, 0
  for width in format:gsub('B', 'I1'):gmatch('I(%d)') do
    list[#list + 1], size = width + 0, size + width
  end
  return list, size
end

-- names returns the names a1 to aN.
local function names(n)
  local list = {}
  for i = 1, n do list[i] = 'a' .. i end
  return table.concat(list, ', ')
end

local function unpackerOf(format)
  local fields, size = widths(format)
  local numbers, at = {}, 0
  for i, width in ipairs(fields) do
    numbers[i] = 'a' .. at + 1
    for k = at + 2, at + width do numbers[i] = '(' .. numbers[i] .. ') * 256 + a' .. k end
    at = at + width
  end
  return loadstring('local byte = string.byte return function(s, at) at = at or 1 local ' .. names(size) ..
    ' = byte(s, at, at + ' .. size - 1 .. ') if at < 1 or not a' .. size .. [[ then error('data string too short') end
    return ]] .. table.concat(numbers, ', ') .. ', at + ' .. size .. ' end')()
end

local function packerOf(format)
  local fields = widths(format)
  local bytes, checks = {}, {}
  for i, width in ipairs(fields) do
    local a = 'a' .. i
    checks[i] = ('A = A + 0 if A < 0 or A >= MOST or A % 1 ~= 0 then error("a number that does not fit") end')
      :gsub('A', a):gsub('MOST', ('%.0f'):format(256 ^ width))
    for k = width - 1, 1, -1 do bytes[#bytes + 1] = ('floor(%s / %.0f) %% 256'):format(a, 256 ^ k) end
    bytes[#bytes + 1] = a .. ' % 256'
  end
  return loadstring('local char, floor = string.char, math.floor return function(' .. names(#fields) .. ') ' ..
    table.concat(checks, ' ') .. ' return char(' .. table.concat(bytes, ', ') .. ') end')()
end

-- compiled returns a table of functions that compiles what it does not hold yet.
local function compiled(compile)
  return setmetatable({}, {__index = function(all, format)
    all[format] = compile(format)
    return all[format]
  end})
end

local packers, unpackers = compiled(packerOf), compiled(unpackerOf)
return {
  pack = function(format, ...) return packers[format](...) end,
  unpack = function(format, s, at) return unpackers[format](s, at) end,
}
