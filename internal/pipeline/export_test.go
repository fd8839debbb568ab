package pipeline

// Block makes callers wait in queue.put until unblock is called.
func (c *Connection) Block() (unblock func()) {
	c.queues[0].mu.Lock()
	return c.queues[0].mu.Unlock
}
