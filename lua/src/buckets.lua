--- Needs sections and reply. Returns the state, bucket by bucket.
local all, bySlot = {0, now}, {}
local function add(...)
  for _, number in ipairs({...}) do all[#all + 1] = number end
end
local function addBuckets(s)
  add(s.total > 0 and s.closed + 1 or 0)
  local p = #s.body + 1
  while s.total > 0 and p > 1 do
    p = p - s.w - s.u
    local b, c = read(s.pair, s.body, p)
    add(s.last - (s.last - b) % s.wrap, s.u > 0 and c or 1)
  end
  if s.total > 0 then add(s.last, s.open) end
end
for _, s in ipairs(sections) do bySlot[s.slot] = s end
for i = 3, lastSlot, 3 do
  add(reply[i], reply[i + 1], reply[i + 2])
  addBuckets(bySlot[i])
end
for _, s in ipairs(sections) do
  if s.slot == 0 then
    add(s.per, s.total, s.total > 0 and s.last + s.per - now or 0)
    addBuckets(s)
  end
end
if ahead > 0 and ahead == (limits > 0 and limits or #sections) then all[2] = earliest end
return all
