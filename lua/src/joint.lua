--- Needs places, all, A, now and k. Once all events of a group are decided, writes their records,
--- and corrects their replies in all.
-- If an event is denied, write only the repairs. After an error, write nothing. Servers check before the
-- first SET of a script whether it may write, so no later SET fails, unless an ACL allows EVALSHA for all
-- keys but SET for only some of them. In that case, what was already written stays. If not all events are
-- allowed, the rows of the allowed events do not include their units.
if k % #places == 0 then
  local fits, broken = true, false -- all events are allowed; one of them fails
  for _, e in ipairs(places) do
    if e.failure then broken = true end
    if broken or not e.allowed then fits = false end
  end
  for _, e in ipairs(places) do
    local value, ms = e.repaired, e.repairedPX
    if fits then value, ms = e.counted, e.countedPX end
    local refused = value and not broken and redis.pcall('SET', e.key, value, 'PX', ms).err
    if refused then all[e.start + 1] = refused end
    for i = 3, not fits and e.allowed and not e.failure and e.lastSlot or 0, 3 do
      local b = e.start + i
      all[b], all[b + 1] = all[b] - e.n, 0
      all[b + 2] = all[b] > 0 and (e.lasts and e.lasts[i] or e.T) + A[e.base + i] - now or 0
    end
  end
end
