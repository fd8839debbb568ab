--- Needs per and max. Gives more, the margin of the highest level relative to it.
local more = 0.001 / per + max * 1e-15
if more * max > 0.18 then more = 0.18 / max end
