--- Needs the record, n, since and reply. Takes n units from it, or all if n is 0, and writes it.
--- Declares changed; sets failure.
local last, total, open, w, pair, wrap, out, outs, expiry
local sections, stamp, changed = {}, T, false
if n == 0 and unread > 0 then pos, unread, changed = len + 1, 0, true end -- as if no section were left
while pos <= len do
  slot = slot + 3
  local res, u = 1, 0
  -- include stored
  local fin, date = pos, last > now and last or now
  -- include collect
  if slot > 0 then reply[slot] = 0 end -- so that a later section with this Per is an error
end
-- include foreign
for _, s in ipairs(failure and {} or sections) do
  -- include refund
end
if changed and not failure then
  -- include rewrite
  if expiry == 0 then
    -- include delete
  else
    local px = string.format('%.0f', expiry - now + (grace or 0))
    failure = redis.pcall('SET', key, write('>BI6', 128 + outs, T) .. out, 'PX', px).err
  end
end
