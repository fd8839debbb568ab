--- Needs the record, in which a section begins at pos, slot, and res and u at 1 and 0. Gives the
--- section, and the slot of its limit; moves pos to its end.
-- The section:
--   per, closed, last, res  Per, how many buckets are closed, the time of the last event, and the
--                           Resolution under which the last bucket was opened
--   total, open             the units of all buckets, and those of the last bucket, which is open
--   at, fin                 where the closed buckets start in v, and where they end (exclusive)
--   w, u, pair, wrap        how many bytes the time and the units of a closed bucket take, the
--                           format that reads both, and 256^w
--   flags                   the flags of the section that tell u and res
if pos > 8 then flags, closed, per, at = read('>BBI4', v, pos) end
-- include reader
if flags > 3 and flags < 8 then res = (per + 59 - (per + 59) % 60) / 60 end
-- include slot
