package window

// SlotOf is for tests.
var SlotOf = slotOf
