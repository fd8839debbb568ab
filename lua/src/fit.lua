--- Needs need, singles and n. Lowers reply[1] to how many of the units the limit allows.
if singles and need + reply[1] > 1 then
  reply[1] = need < 1 and 1 - need or 0
  -- include lower for some
end
