--- Gives struct: the library of the server or, on one that has none, pack and unpack for B, I1 to I7 and d after >.
local struct = rawget(_G, 'struct')
if not struct then
  struct = {}

  -- fields iterates over the fields of a format: the width of an integer in bytes, or d for a double.
  local function fields(format) return format:gsub('B', '1'):gmatch('[%dd]') end

  local function bytes(n, width)
    return (width > 1 and bytes(math.floor(n / 256), width - 1) or '') .. string.char(n % 256)
  end

  local function number(s, at, width)
    local n = 0
    for i = at, at + width - 1 do n = n * 256 + (s:byte(i) or error('data string too short')) end
    return n
  end

  -- A double is (1 + m / 2^52) x 2^e: 12 bits hold e + 1023, and 52 bits hold m. This is true of levels.
  -- What no level is, 0, subnormal, negative or not a number, reads as less than 2^-1022 or as infinite.
  function struct.pack(format, ...)
    local all, i = '', 0
    for width in fields(format) do
      i = i + 1
      local n = select(i, ...)
      if width == 'd' then
        local half, e = math.frexp(n)
        local m = (half * 2 - 1) * 2 ^ 52
        all = all .. bytes((e + 1022) * 2 ^ 20 + math.floor(m / 2 ^ 32), 4) .. bytes(m % 2 ^ 32, 4)
      else
        all = all .. bytes(n, width + 0)
      end
    end
    return all
  end

  function struct.unpack(format, s, at)
    local all = {}
    at = at or 1
    for width in fields(format) do
      if width == 'd' then
        local high, low = number(s, at, 4), number(s, at + 4, 4)
        all[#all + 1] = math.ldexp(1 + (high % 2 ^ 20 * 2 ^ 32 + low) / 2 ^ 52, math.floor(high / 2 ^ 20) - 1023)
        at = at + 8
      else
        all[#all + 1] = number(s, at, width + 0)
        at = at + width
      end
    end
    all[#all + 1] = at
    return unpack(all)
  end
end
