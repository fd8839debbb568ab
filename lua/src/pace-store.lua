--- Needs sections, floor, pauseEnd, shift, stepped and grace. Writes the record, or deletes it if
--- nothing is left.
date = now < floor and floor or now
local out, outs, expiry, longest = '', 0, pauseEnd > date and pauseEnd or date, 0
for i = 1, taken do
  local s = sections[i]
  if not (turns and s.max) then forget(s, date) end -- book forgets them itself
  local closed, per, last, total, open, u = s.closed, s.per, s.last, s.total, s.open, s.u
  if total > 0 then
    if broken or closed > 65535 then
      return redis.error_reply('SLIDEGATE key ' .. key .. ' has ' .. (broken and 'units that do not add up' or
        'more buckets than a record can hold') .. '; reset it')
    end
    local flags, fields, body = s.coarse and 4 or 0, '', closed > 0 and s.v:sub(s.at, s.fin - 1) or ''
    if last ~= floor then flags, fields = flags + 16, write('>I6', last) end
    -- include compose
    out, outs = out .. body, outs + 1
    if last + per > expiry then expiry = last + per end
    if per > longest then longest = per end
  end
end
-- include full
if stepped > 0 and stepped + longest >= date then -- a turn at this time or before it may still count
  out, outs = out .. write('>BBI4I6I7I7', 19, 0, 4294967295, 0, stepped, stepped), outs + 1
  if stepped >= expiry then expiry = stepped + 1 end
end
if not failure and (expiry > now or grace) then -- the callers' clock may step back, so their record stays
  local head = pauseEnd > 0 and write('>BBI6I6I6I6', 249, outs, floor, now, pauseEnd, shift) or
    write('>BBI6I6', 248, outs, floor, now)
  failure = redis.pcall('SET', key, head .. out, 'PX', string.format('%.0f', expiry - now + (grace or 0))).err
elseif not failure and v then
  -- include delete
end
