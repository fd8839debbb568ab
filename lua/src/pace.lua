--- Books turns in advance. Verbs: book cancel pause due inspect reset.
-- include pace-contract

-- include struct
local redis, read, write, A, key = redis, struct.unpack, struct.pack, ARGV, KEYS[1]

local now, grace
-- include pace-arguments
-- include clock
-- include pace-limits

-- include pace-head
if op == 'reset' and unread >= 0 then return {redis.call('DEL', key), now, 0, 0} end

-- include pace-sections
-- include foreign
if failure then return redis.error_reply(failure) end

-- include pace-buckets

local changed = false
if now < clock then
  -- include pace-turnback
end

local date = now < floor and floor or now -- no later turn is before this
local reply = {0, now, shift, pauseEnd, nil, nil}
if op == 'book' then
  -- include pace-book
elseif op == 'cancel' then
  -- include pace-cancel
elseif op == 'pause' then
  -- include pace-pause
elseif op == 'inspect' then
  -- include pace-inspect
end

if changed and op ~= 'due' then
  -- include pace-store
end
return failure and redis.error_reply(failure) or reply
