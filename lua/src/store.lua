--- Needs out, outs and expiry. Writes the record.
if outs > 31 then
  failure = 'SLIDEGATE key ' .. key .. full
elseif expiry == 0 then
  local deleted = redis.pcall('DEL', key)
  if deleted ~= 0 and deleted ~= 1 then failure = deleted.err end
else
  if dated or not px then px = string.format('%.0f', expiry - now + grace) end
  failure = redis.pcall('SET', key, write('>BI6', 128 + outs, newT) .. out, 'PX', px).err
end
