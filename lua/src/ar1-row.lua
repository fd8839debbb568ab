--- Needs a slot, with its limit and level in reply. Sets the three integers there; changes out,
--- outs and far.
local per, most, x, left = reply[slot], reply[slot + 1], reply[slot + 2] or 0, 0
local peak = most + unit -- less than 1 above Max
if adds then
  if x <= most then x = x + unit elseif x < peak then x = peak end
end
-- include ar1-used
-- include ar1-wait
if x > 0 then
  -- include ar1-left
  if writes and not rounds then
    -- include ar1-write
  end
end
reply[slot + 2] = left
if levels then levels[slot / 3] = x * 1e8 - x * 1e8 % 1 end
