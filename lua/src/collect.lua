--- Needs a section. Adds it to sections, unless that is nil.
if sections then
  sections[#sections + 1] = {slot = slot, per = per, closed = closed, last = last, res = res, total = total,
    open = open, w = w, u = u, pair = pair, wrap = wrap, date = date,
    body = closed > 0 and v:sub(at, fin - 1) or ''}
end
