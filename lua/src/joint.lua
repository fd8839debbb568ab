--- Needs places. Writes the records of a group once it is decided.
if joint and k % size == 0 then
  -- The group is decided. Write all records with their units or, if an event is denied, only the repairs.
  -- After an error, write nothing. Servers check before the first SET of a script whether it may write, so
  -- no later SET fails, unless an ACL allows EVALSHA for all keys but SET for only some of them. In that
  -- case, what was already written stays. If not all events are allowed, the rows of the allowed events
  -- do not include their units.
  for i = 1, size do
    local p = places[i]
    local value, px = p.repaired, p.repairedPX
    if fits then value, px = p.counted, p.countedPX end
    local failure = value and not broken and redis.pcall('SET', p.key, value, 'PX', px).err
    if failure then all[p.place + 1] = failure end
    for b = p.place + 3, not fits and p.allowed and not p.failure and p.place + p.lastSlot or 0, 3 do
      local slot = b - p.place
      all[b], all[b + 1] = all[b] - p.n, 0
      all[b + 2] = all[b] > 0 and (p.lasts and p.lasts[slot] or p.T) + A[p.base + slot] - now or 0
    end
  end
  fits, broken = true, false
end
