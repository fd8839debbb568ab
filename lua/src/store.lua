--- Needs key, out, outs, expiry, px, ahead, now and grace. Writes the record; sets failure if that
--- is refused.
-- include full
if not failure then
  if grace or ahead > 0 or not px then px = string.format('%.0f', expiry - now + (grace or 0)) end
  failure = redis.pcall('SET', key, write('>BI6', 128 + outs, now) .. out, 'PX', px).err
end
