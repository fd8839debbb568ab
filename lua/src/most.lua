--- Needs units and size. Gives most, the most units of the events in position k.
for other = k, keys, size do
  if units[other] > most then most = units[other] end
end
