--- Needs sections, n, A and count. Returns the state, bucket by bucket.
local t, byPer = date < pauseEnd and pauseEnd or date, {}
for _, s in ipairs(sections) do
  -- include pace-earliest
  if earliest > t then t = earliest end
  s.earliest, byPer[s.per] = earliest, s
end
reply[5], reply[6] = floor, t -- the turn that n units would get

local function add(...)
  for _, number in ipairs({...}) do reply[#reply + 1] = number end
end
local function addSection(s)
  forget(s, date)
  add(s.total)
  if s.max then add(math.max(s.earliest - now, 0)) end
  if s.total > 0 then
    add(s.last + s.per - now, s.closed + 1)
    for i = s.closed, 1, -1 do
      local at, units = bucket(s, s.at + (i - 1) * (s.w + s.u))
      reply[#reply + 1] = at
      reply[#reply + 1] = units
    end
    add(s.last, s.open)
  else
    add(0, 0)
  end
end
for i = 4, count, 2 do addSection(byPer[A[i] + 0]) end
for _, s in ipairs(sections) do
  if not s.max and s.last + s.per > date then
    add(s.per)
    addSection(s)
  end
end
if broken then
  return redis.error_reply('SLIDEGATE key ' .. key .. ' has units that do not add up; reset it')
end
return reply
