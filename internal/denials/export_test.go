package denials

// Lease is how long a look holds for all callers.
const Lease = lease

// Len returns how many denials are remembered.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.denials)
}
