--- Needs the record and limits. Declares the state of the loop over sections and limits, except for
--- that of the new record.
-- The loop decides on one section at a time, and then on each limit that has no section. It writes to
-- reply the state after the units are counted. The first limit that denies corrects this for the limits
-- before it.
--   undecided        how many limits are still undecided
--   ahead, earliest  how many limits have a date later than now, and the earliest such date
--   lasts            last of each slot where it is not T
-- Where units are counted, the new record:
--   out, outs, expiry, px  its sections, their number, the time when the last of their units is
--                          forgotten, and the PX for that time, if it is the Per of a limit
local undecided, ahead, earliest, lasts = unread < 0 and 0 or limits, 0, 281474976710656
local last, total, open, w, pair, wrap
