--- Needs key, out, outs, far, per1 and x1. Writes the record, or deletes the key if nothing is
--- left; sets failure if the server refuses.
-- include full
if outs == 0 then
  -- include delete
elseif not failure then
  if A[2] ~= '' then
    local grace
    -- include grace
    far = far + grace
  end
  local head = per1 and write('>BI7I4d', 160 + outs, now, per1, x1) or write('>BI7', 160 + outs, now)
  failure = redis.pcall('SET', key, head .. out, 'PX', ('%d'):format(far)).err
end
