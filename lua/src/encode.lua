--- Needs a section, body with its closed buckets, and stamp, the T of the record that is written.
--- Appends the section to out; changes flags, body and u.
-- include width
if fits > u then
  -- include widen
  u = fits
end
local fields = ''
flags = 0
if last ~= stamp then flags, fields = 16, write('>I6', last) end
if res == math.ceil(per / 60) then
  flags = flags + 4
elseif res > 1 then
  flags, fields = flags + 8, fields .. write('>I6', res)
end
-- include compose
out = out .. body
