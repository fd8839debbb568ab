--- Needs write, and a section with its body; flags and fields: those of its last time and of its
--- Resolution. Makes body the whole section.
if u == 1 then
  flags = flags + 1
  fields = fields .. write('>BB', total, open)
elseif u > 1 then
  flags = flags + (u + 5) / 4
  fields = fields .. (u == 3 and write('>I3I3', total, open) or write('>I7I7', total, open))
end
if closed > 255 or per > 4294967295 then
  body = write('>BI2I6', flags + 32, closed, per) .. fields .. body
else
  body = write('>BBI4', flags, closed, per) .. fields .. body
end
