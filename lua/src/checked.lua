--- Needs limits, valid and least, the least number of limits. Returns an error if the arguments are
--- invalid.
if not (valid and limits % 1 == 0 and limits <= 31 and limits >= least) then
  return redis.error_reply('SLIDEGATE key ' .. KEYS[1] .. ': invalid arguments (see the header of window.lua)')
end
