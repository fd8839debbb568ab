--- Needs a limit and its level. Sets the wait until the limit would allow the same call.
local wait = 0
if x > most then
  wait = per * log(x / most)
  wait = wait - wait % 1
  if wait < 1 or x * exp(-wait / per) > most then wait = wait + 1 end
end
reply[slot + 1] = wait
