--- Needs key. Gives v, the record of len bytes, and its head; sets failure if the server refuses.
-- The record. unread is how many of its sections are still to be read. Below 0, it is no record.
--   T       when it was written
--   per, x  the Per of the current section, and its level
--   pos     where the next section starts
local v = redis.pcall('GET', key)
local len, unread, T, per, x, pos
if v then
  len = #v -- 0 if v is an error
  if len > 19 then
    unread, T, per, x, pos = read('>BI7I4d', v) -- with the first section
    unread = unread - 160
    if unread < 1 or unread > 31 or T > 9007199254740991 then unread = -1 end
  else
    unread, failure = -1, v.err
    if failure then
      -- include wrongtype
    end
  end
else
  unread = 0
end
