--- Needs a section, its limit, n, adds and wait. Sets the three integers of the limit; counts down
--- undecided.
undecided = undecided - 1
reply[slot + 1] = wait
if adds then
  reply[slot] = total + n
  reply[slot + 2] = date + per - now
else
  reply[slot] = total
  reply[slot + 2] = total > 0 and last + per - now or 0
end
