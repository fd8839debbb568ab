--- Needs A, key, count, least, most and valid. Gives maxes. Fails if the arguments are invalid.
local limits = (count - 3) / 2
if not (valid and limits % 1 == 0 and limits <= 31 and limits >= least) then
  return redis.error_reply('SLIDEGATE key ' .. key .. ': invalid arguments (see the header of pace.lua)')
end

-- The limits. maxes[Per] is the Max, or true once a section for that Per is found.
local maxes = {}
for i = 4, count, 2 do
  local per, max = A[i] + 0, A[i + 1] + 0
  if not (per >= 1 and per <= 17592186044416 and per ~= 4294967295 and most <= max and max <= 9007199254740992 and
    per % 1 + max % 1 == 0) then
    return redis.error_reply(string.format(
      'SLIDEGATE key %s: limit %d or the units are invalid (see the header of pace.lua)', key, i / 2 - 1))
  end
  if maxes[per] then
    return redis.error_reply('SLIDEGATE key ' .. key .. ': two limits have the same Per; keep the tighter one')
  end
  maxes[per] = max
end
