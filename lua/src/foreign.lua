--- Needs key, v and unread. Sets failure unless all of the record was read.
if unread ~= 0 and not failure then
  failure = 'SLIDEGATE key ' .. key .. ' holds no record that this version reads (first byte ' ..
    (v:byte(1) or 0) .. ', or cut short); remove it, or rename the limiter'
end
