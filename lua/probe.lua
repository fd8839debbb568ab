-- probe.lua helps to prove that all keys are on one server, so that one call for several events
-- counts each of them where calls for that event alone look for it. Some proxies divide the keys
-- among servers, and send a call to the server of its first key, without an error.
--
-- First, one call marks many keys. Then one call for each key must find its mark: a call that the
-- proxy sends elsewhere does not find it.
--
-- KEYS[k]  keys that nothing else uses, in many hash slots: Name:{~...}:p
-- ARGV[1]  mark: give each key the value, for 2 s; find: look for it
-- ARGV[2]  the value, different for each proof
--
-- Reply: one integer, how many of the keys were marked or found.
-- Errors: those of SET and GET.

local found = 0
for _, key in ipairs(KEYS) do
  if ARGV[1] == 'mark' then
    redis.call('SET', key, ARGV[2], 'PX', 2000)
    found = found + 1
  elseif redis.call('GET', key) == ARGV[2] then
    found = found + 1
  end
end
return {found}
