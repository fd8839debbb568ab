--- Needs A, count, the number of arguments about limits, base, valid, least, most and now. Gives
--- limits, lastSlot, reply and key; returns an error if the arguments are invalid.
limits, key = (count - 2 - base) / 3, KEYS[1]
-- include checked
-- include slots
