--- Needs the record and the state of the loop. Declares res, u and fin; gives the next section or,
--- after the last one, a limit that has none, of which forget sets the rest.
slot = slot + 3
local res, u = 1, 0
if pos <= len then
  -- include stored
else
  while slot > lastSlot or reply[slot] >= 0 do slot = slot % lastSlot + 3 end -- the next undecided one
  per = -reply[slot]
  last = now - per -- old enough to be forgotten
end
local fin = pos
