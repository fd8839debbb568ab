--- Needs key. Gives the record v of len bytes, and its head.
-- The head of the record. unread is how many of its sections are still to be read. Below 0, it is no
-- record.
--   clock            the clock at the last write
--   pauseEnd, shift  the end of the last pause, and the sum of the delays added by all pauses
--   pos              where the next section starts
local v = redis.pcall('GET', key)
local floor, clock, pauseEnd, shift, pos, len, unread, failure = 0, 0, 0, 0, 15, 0, 0
if v then
  len = #v -- 0 if v is an error
  local first
  if len > 13 then
    first, unread, floor, clock = read('>BBI6I6', v)
  elseif v.err then
    failure = v.err
    -- include wrongtype
  end
  if first == 249 and len > 25 then
    pauseEnd, shift, pos = read('>I6I6', v, 15)
  elseif first ~= 248 then
    unread = -1
  end
end
