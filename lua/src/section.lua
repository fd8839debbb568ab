--- Needs the record and the state of the loop. Declares res, u and fin; gives the next section or,
--- after the last one, a limit that has none, of which forget sets the rest.
-- The next section or, after the last one, a limit that has none:
--   per, closed, last, res  Per, how many buckets are closed, the time of the last event, and the
--                           Resolution under which the last bucket was opened
--   total, open             the units of all buckets, and those of the last bucket, which is open
--   at, fin                 where the closed buckets start in v, and where they end (exclusive)
--   w, u, pair, wrap        how many bytes the time and the units of a closed bucket take, the
--                           format that reads both, and 256^w
--   flags                   the flags of the section that tell u and res
slot = slot + 3
local res, u = 1, 0
if pos <= len then
  if pos > 8 then flags, closed, per, at = read('>BBI4', v, pos) end
  -- include reader
  if flags > 3 and flags < 8 then res = (per + 59 - (per + 59) % 60) / 60 end
  -- include slot
else
  while slot > lastSlot or reply[slot] >= 0 do slot = slot % lastSlot + 3 end -- the next undecided one
  per = -reply[slot]
  last = now - per -- old enough to be forgotten
end
local fin = pos
