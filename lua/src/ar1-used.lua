--- Needs a limit, its level and peak. Sets the units used.
local max, free = peak - peak % 1, peak - x
local part = free % 1
if part < 0.2 then -- without the margin, it may be one less
  -- include ar1-margin
  free = (most - x) / (1 + more) + unit
  part = free % 1
end
reply[slot] = free < 0 and max or max - free + part
