--- Needs the state of the loop. Starts it over if again is set.
if again and pos > len and undecided == 0 then
  -- Start over, with as many units as every limit allows.
  pos, slot, undecided, seen, ahead, out, outs, expiry = 8, 0, limits, 0, 0, '', limits, 0
  again, sections, allowed, adds, counts = false, sections and {}, true, true, true
  for b = 3, lastSlot, 3 do
    reply[b], reply[b + 1], reply[b + 2] = -A[b + base], A[b + base + 1] + 0, A[b + base + 2] + 0
  end
  if v then flags, closed, per, at = read('>BBI4', v, 8) end
end
