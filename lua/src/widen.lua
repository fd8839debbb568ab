--- Needs read, write, w, u, closed, fits, and the closed buckets in body. Gives their units fits
--- bytes.
local wider = {}
for i = 1, closed do
  local p = (i - 1) * (w + u) + 1
  local held = u == 0 and 1 or read(u == 1 and '>I1' or '>I3', body, p + w)
  wider[i] = body:sub(p, p + w - 1) .. write('>I' .. fits, held)
end
body = table.concat(wider)
