package send

import "github.com/slidegate/slidegate/internal/connection"

// Block makes callers wait in queue.put until unblock is called.
func Block(conn *connection.Connection) (unblock func()) {
	q := officeOf(conn).masters.ranges[0].queue
	q.mu.Lock()
	return q.mu.Unlock
}
