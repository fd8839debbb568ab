--- Needs now, as in ARGV. Gives now in ms, and simulated; changes valid.
if now == '' then
  local t = redis.call('TIME')
  local us = t[2] + 0
  now = t[1] * 1000 + (us - us % 1000) / 1000
else
  now, simulated = now + 0, true
  valid = valid and now >= 0 and now < 140737488355328 and now % 1 == 0
end
