--- Needs per and the level x, of REST or more. Sets left, the wait until x counts as 0.
left = per * log(x / REST)
left = left - left % 1 + 1
