--- Needs total and closed. Gives fits.
-- fits is how many bytes units take: 0 if every bucket holds 1.
local fits = total == closed + 1 and 0 or total < 256 and 1 or total < 16777216 and 3 or 7
