--- Needs A, base, the number of events, and n. Gives units, the n of each event; changes most and
--- valid.
units = {n}
for k = 2, base do
  local more = A[k + 2] == '1' and 1 or A[k + 2] + 0
  if more > most then most = more end
  units[k], valid = more, valid and more >= 1 and more % 1 == 0
end
