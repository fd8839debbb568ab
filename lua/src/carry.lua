--- Needs a section without a limit. Gives body, so that the section stays in the record; changes
--- outs, expiry and px.
-- Keep the sections of callers with other limits until they are forgotten.
if last + per > now then
  body, outs = v:sub(at, fin - 1), outs + 1
  if last + per > expiry then expiry, px = last + per, nil end
end
