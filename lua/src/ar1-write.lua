--- Needs a limit, its level and left. Puts its section before out; gives the first one in per1 and
--- x1.
if left > far then far = left end
outs = outs + 1
if per > 4294967295 then
  out = write('>I4I6d', 0, per, x) .. out
elseif slot > 3 then
  out = write('>I4d', per, x) .. out
else -- it is written with the head
  per1, x1 = per, x
end
