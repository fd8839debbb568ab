--- Needs the record, and the first 12 bytes of a section in per and x. Gives the whole section;
--- changes unread.
unread = unread - 1
if per == 0 then -- 6 bytes of Per follow
  if pos + 5 > len then unread = -1 break end
  per, x, pos = read('>I6d', v, pos - 8)
  if per < 4294967296 or per > 17592186044416 then unread = -1 break end
end
if not (x >= REST and x <= 2e7) then unread = -1 break end
