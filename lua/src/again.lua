--- Needs the state of the loop. Starts it over if again is set.
-- A limit can allow fewer units than the limits before it have counted. The loop then starts over, with
-- as many units as every limit allows.
if again and pos > len and undecided == 0 then
  pos, slot, undecided, ahead, out, outs, expiry, again = 8, 0, limits, 0, '', limits, 0, false
  sections, adds, reply[1] = sections and {}, true, n
  for b = 3, lastSlot, 3 do
    reply[b], reply[b + 1], reply[b + 2] = -A[b + base], A[b + base + 1] + 0, A[b + base + 2] + 0
  end
  if v then
    unread, T, flags, closed, per, at = read('>BI6BBI4', v)
    unread = unread - 128
  end
end
