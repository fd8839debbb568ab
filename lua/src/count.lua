--- Needs a section, n and joins. Appends the section with the n units to out or, if it is none of
--- the two frequent kinds, gives body; changes closed, open, res, expiry and px. If a record cannot
--- hold that many units, sets failure and leaves the loop.
if not joins then closed = closed + 1 end
local plain = flags < 8 and closed < 256 and per < 4294967296 and date == now and (joins or res == reply[slot + 2])
if plain and u == 0 and n == 1 and total == closed then -- every bucket holds 1
  if closed == 0 then
    out = out .. write('>BBI4', flags, 0, per)
  else
    out = out .. write(w == 3 and '>BBI4I3' or w == 4 and '>BBI4I4' or '>BBI4I2', flags, closed, per,
      last % wrap) .. v:sub(at, fin - 1)
  end
elseif plain and u == 1 and total + n < 256 then -- units of a byte
  if joins then
    out = out .. write('>BBI4BB', flags, closed, per, total + n, open + n) .. v:sub(at, fin - 1)
  else
    out = out .. write(w == 3 and '>BBI4BBI3B' or w == 4 and '>BBI4BBI4B' or '>BBI4BBI2B', flags, closed, per,
      total + n, n, last % wrap, open) .. v:sub(at, fin - 1)
  end
else
  if total > 9007199254740992 - n or closed > 65535 then
    failure = 'SLIDEGATE key ' .. key ..
      ' would count more than 2^53 units or 65,536 buckets; wait until some are forgotten, or reset it'
    break
  end
  body = closed > 0 and v:sub(at, fin - 1) or ''
  if joins then
    open = open + n
  else
    body = write(pair, last % wrap, open) .. body -- without units if every bucket holds 1
    open, res = n, reply[slot + 2]
  end
end
if date + per > expiry then expiry, px = date + per, A[slot + base] end
