--- Needs the record, A, count and maxes. Gives sections, taken, how many there are, and stepped;
--- unread is then 0, unless the record was not all read.
-- stepped is the newest turn that was booked before the clock last stepped back, or 0.
-- The sections of the record, and then sections for limits that have none in the record. Each section is
-- a table in sections:
--   per, max          the Per, and the Max of the caller's limit; max is nil if the caller has no such limit
--   last, open        the time and the units of the last bucket
--   coarse            whether the last bucket accepts turns in the same Per/240
--   total, closed     the units of all buckets (0 if there are none), and how many buckets are closed
--   v, at, fin        the closed buckets start at at in v, and end before fin; the newest comes first
--   w, u, pair, wrap  how many bytes the time and the units of a closed bucket take, the format that
--                     reads both, and 256^w
local sections, taken, stepped = {nil, nil, nil, nil}, 0, 0
do
  local T, i = floor, 4
  local last, total, open, w, pair, wrap, res
  while (pos <= len or i < count) and unread >= 0 do
    local start, flags, closed, per, at, u = pos, 0, 0, 0, pos, 0
    if start > len then
      while i < count and per == 0 do
        per, i = A[i] + 0, i + 2
        if maxes[per] == true then per = 0 end
      end
      if per == 0 then break end
    elseif start + 5 > len then
      unread = -1
      break
    else
      flags, closed, per, at = read('>BBI4', v, start)
      unread = unread - 1
    end
    -- include reader
    local max = maxes[per]
    if start > len then
      total, open = 0, 0
    elseif unread < 0 or pos > len + 1 or res or max == true or last > floor or open < 1 or total < open + closed then
      unread = -1 -- res: a Resolution in a field, which only window has
      break
    end
    maxes[per] = true
    if per == 4294967295 then
      stepped = open
    else
      taken = taken + 1
      sections[taken] = {per = per, max = max, last = last, open = open, coarse = flags > 3, total = total,
        closed = closed, v = v, at = at, fin = pos, w = w, u = u, pair = pair, wrap = wrap}
    end
  end
end
