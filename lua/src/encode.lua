--- Gives encode, which returns a section for the record.
-- encode returns a section whose closed buckets are body. If units need more than u bytes, encode
-- widens them. recordT is the T of the record.
local function encode(recordT, per, closed, last, res, total, open, body, w, u)
  local pack, fits = struct.pack, total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
  if fits > u then
    local wider = {}
    for i = 0, closed - 1 do
      local at = i * (w + u) + 1
      local units = u == 0 and 1 or struct.unpack(u == 1 and '>I1' or '>I3', body, at + w)
      wider[i + 1] = string.sub(body, at, at + w - 1) .. pack('>I' .. fits, units)
    end
    body, u = table.concat(wider), fits
  end
  local flags, fields = u > 1 and (u + 5) / 4 or u, ''
  if last ~= recordT then flags, fields = flags + 16, pack('>I6', last) end
  if res == math.ceil(per / 60) then
    flags = flags + 4
  elseif res > 1 then
    flags, fields = flags + 8, fields .. pack('>I6', res)
  end
  if u == 1 then
    fields = fields .. pack('>BB', total, open)
  elseif u > 1 then
    fields = fields .. (u == 3 and pack('>I3I3', total, open) or pack('>I7I7', total, open))
  end
  if closed < 256 and per < 4294967296 then
    return pack('>BBI4', flags, closed, per) .. fields .. body
  end
  return pack('>BI2I6', flags + 32, closed, per) .. fields .. body
end
