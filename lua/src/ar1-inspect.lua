--- Needs reply, levels and others. Returns the state.
local state = {0, now}
for slot = 3, lastSlot, 3 do
  for i = slot, slot + 2 do state[#state + 1] = reply[i] end
  state[#state + 1] = levels[slot / 3]
end
for _, number in ipairs(others) do state[#state + 1] = number end
return state
