--- Needs key, and the server's error in failure. Explains it if the type is wrong.
if failure:sub(1, 9) == 'WRONGTYPE' then
  failure = 'WRONGTYPE key ' .. key .. ' holds no string; remove it, or rename the limiter'
end
