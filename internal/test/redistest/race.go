//go:build race

package redistest

// Race reports whether the race detector is on. Then objects are larger and a sync.Pool drops items
// at random, so a test that counts allocations or bytes skips itself.
const Race = true
