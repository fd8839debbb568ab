--- Needs A and valid. Gives now, in us; changes valid.
now = A[2]
if now == '' then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = now + 0
  valid = valid and now >= 0 and now < 9007199254740992 and now % 1 == 0
end
