--- Needs sections, now and stamp. Gives out, outs and expiry: all sections that are not forgotten;
--- overwrites the section.
out, outs, expiry = '', 0, 0
for _, s in ipairs(sections) do
  if s.total > 0 and s.last + s.per > now then
    local res, u, body = s.res, s.u, s.body
    per, closed, last, total, open, w = s.per, s.closed, s.last, s.total, s.open, s.w
    -- include encode
    outs = outs + 1
    if last + per > expiry then expiry = last + per end
  end
end
