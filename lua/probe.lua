-- probe.lua helps to prove that all keys are on one server. Only then does one call for several events
-- count each event where calls for that event alone look for it. Some proxies distribute keys over
-- several servers, but send each call to the server of its first key, without an error.
--
-- First, one call marks many keys. Then a separate call for each key must find the mark on that key. If
-- the proxy sends such a call to another server, it does not find the mark.
--
-- KEYS[k]  keys that nothing else uses, in many hash slots: Name:{~...}:p
-- ARGV[1]  mark: set each key to the value, for 2 s; find: count the keys that have the value
-- ARGV[2]  the value, different for each proof
--
-- Reply: one integer, the number of keys that were marked or found.
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
