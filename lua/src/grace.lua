--- Gives grace.
grace = 86400000 -- keep keys for one more day, because the callers' clock may be behind
