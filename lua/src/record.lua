--- Needs key. Declares v, len, T, unread, pos, slot and failure, and for the head of the first
--- section flags, closed, per and at.
-- The record. unread is how many of its sections are still to be read. Below 0, it is no record.
--   T           the time in the head of the record
--   failure     why the event fails
--   pos, slot   where the next section starts; the index in reply of the three integers of its limit
local v = redis.pcall('GET', key)
local len, T, unread, pos, slot, failure, flags, closed, per, at = 0, 0, 0, 8, 0
if v then
  len = #v -- 0 if v is an error
  if len > 12 then -- the shortest record has 13 bytes
    unread, T, flags, closed, per, at = read('>BI6BBI4', v) -- with the head of the first section
    unread = unread - 128
  elseif v.err then
    failure = v.err
    -- include wrongtype
  end
  if unread < 1 or unread > 31 then pos, unread = len + 1, -1 end
end
