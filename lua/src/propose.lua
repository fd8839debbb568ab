--- Needs place, all, and the state of the loop. Keeps in place what the key may be set to, and in
--- all the reply.
-- Nothing is written before all events of the group are decided.
--   counted, repaired  the record with the units counted, and the record without them, if it has a
--                      timestamp to repair
place.key, place.start, place.n, place.T, place.lasts, place.allowed = key, #all, n, T, lasts, adds
place.counted, place.repaired = nil, nil
if adds and not failure then
  if grace or ahead > 0 or not px then px = string.format('%.0f', expiry - now + (grace or 0)) end
  place.counted, place.countedPX = write('>BI6', 128 + outs, now) .. out, px
  -- include full
end
if sections and sections.changed and not failure then
  -- include rewrite
  place.repaired, place.repairedPX = write('>BI6', 128 + outs, now) .. out, string.format('%.0f', expiry - now + (grace or 0))
end
if ahead == limits then reply[2] = earliest end
place.failure, reply[1] = failure, failure or reply[1]
for b = 1, lastSlot + 2 do all[place.start + b] = reply[b] end
