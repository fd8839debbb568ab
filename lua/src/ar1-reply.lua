--- Needs failure, reply, rows and changed. Returns the reply to a call for one event.
if failure then return redis.error_reply(failure) end
if since then return {changed and 1 or 0} end
if not rows then return reply end
rows[1], rows[2] = reply[1], now
if not counting and reply[1] > 0 and reply[1] < n then -- the row of the first denial equals the last one
  for i = 3, lastSlot + 2 do rows[#rows + 1] = reply[i] end
end
return rows
