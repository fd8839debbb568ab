--- Needs a section for which the caller has no limit. Writes it as of now; for inspect, lists it in
--- others.
local left = 0
if x >= REST then
  -- include ar1-left
  if left > far then far = left end
  out, outs = out .. (per < 4294967296 and write('>I4d', per, x) or write('>I4I6d', 0, per, x)), outs + 1
end
if others then
  if x < REST then x = 0 end
  for _, number in ipairs({per, left, x * 1e8 - x * 1e8 % 1}) do others[#others + 1] = number end
end
