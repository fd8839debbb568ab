--- Needs a section and n. Appends the section, with the units counted, to out.
if counts then
  if not joins then closed = closed + 1 end
  local plain = short and closed < 256 and (joins or res == reply[slot + 2])
  if plain and u == 0 and n == 1 and total == closed then
    if closed == 0 then
      out = out .. write('>BBI4', short, 0, per)
    else
      out = out .. write(w == 3 and '>BBI4I3' or w == 4 and '>BBI4I4' or '>BBI4I2', short, closed, per,
        last % wrap) .. v:sub(at, fin - 1)
    end
  elseif plain and u == 1 and total + n < 256 then
    if joins then
      out = out .. write('>BBI4BB', short, closed, per, total + n, open + n) .. v:sub(at, fin - 1)
    else
      out = out .. write(w == 3 and '>BBI4BBI3B' or w == 4 and '>BBI4BBI4B' or '>BBI4BBI2B', short, closed, per,
        total + n, n, last % wrap, open) .. v:sub(at, fin - 1)
    end
  else
    if total > 9007199254740992 - n or closed > 65535 then
      failure = 'SLIDEGATE key ' .. key ..
        ' would count more than 2^53 units or 65,536 buckets; wait until some are forgotten, or reset it'
      break
    end
    local body = closed > 0 and v:sub(at, fin - 1) or ''
    if joins then
      open = open + n
    else
      body = write(pair, last % wrap, open) .. body -- without units if every bucket holds 1
      open, res = n, reply[slot + 2]
    end
    out = out .. encode(newT, per, closed, date, res, total + n, open, body, w, u)
  end
  if due > expiry then expiry, px = due, A[slot + base] end
end
