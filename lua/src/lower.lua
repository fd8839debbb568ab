--- For the verb some: lowers n, too; sets again if the limits before this one have counted more.
if not counting and need < 1 then again, n = again or undecided < limits, reply[1] end
