--- Needs sections and length. Moves the turns from now on: changes sections, floor, pauseEnd, stepped, shift, reply and changed.
-- added is by how much the pause is longer than what is left of an earlier one.
local added = now + length - math.max(now, pauseEnd)
if added > 0 then
  for _, s in ipairs(sections) do
    if s.last >= now and s.total > 0 then
      local body, step, last = {}, s.w + s.u, s.last + added
      for i = 1, s.closed do
        local t, units = bucket(s, s.at + (i - 1) * step)
        if t >= now then t = t + added end
        if t + s.per <= last then
          s.total = s.total - units -- the bucket is forgotten by then
        else
          body[#body + 1] = write(s.pair, t % s.wrap, units)
        end
      end
      s.v, s.last, s.closed = table.concat(body), last, #body
      s.at, s.fin = 1, #s.v + 1
    end
  end
  if floor >= now then floor = floor + added end
  if stepped > 0 then stepped = stepped + added end
  pauseEnd, shift, changed = now + length, shift + added, true
  if shift > 281474976710655 then
    return redis.error_reply('SLIDEGATE key ' .. key .. ' has been paused for longer than it can count; reset it')
  end
  reply[1], reply[3], reply[4] = 1, shift, pauseEnd
end
