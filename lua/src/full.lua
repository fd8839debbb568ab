--- Needs key and outs. Sets failure if the record would have too many sections.
if outs > 31 then
  failure = 'SLIDEGATE key ' .. key .. ' would count for more than 31 limits; wait until some are forgotten, or reset it'
end
