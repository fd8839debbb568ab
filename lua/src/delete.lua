--- Needs key. Deletes it; sets failure if the server refuses.
local deleted = redis.pcall('DEL', key)
if deleted ~= 0 and deleted ~= 1 then failure = deleted.err end
