--- Needs a section and, unless out has it already, body. Appends the section to out, with the n
--- units if it has a limit. Row comes before, since this changes total and last.
if body then
  if slot > 0 then last, total = date, total + n end
  -- include encode
end
