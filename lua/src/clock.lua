--- Needs A and valid. Gives now, in ms, and, for verbs that write, grace; changes valid.
now = A[2]
if now == '' then
  local t = redis.call('TIME')
  local us = t[2] + 0
  now = t[1] * 1000 + (us - us % 1000) / 1000
else
  now = now + 0
  -- include grace for allow counteach refund undo joint book
  valid = valid and now >= 0 and now < 140737488355328 and now % 1 == 0
end
