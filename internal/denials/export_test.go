package denials

// Lease is how long all callers may use the result of a fetch.
const Lease = lease

// Len returns the number of denials in the cache.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.denials)
}
