package send

import (
	"sync"
	"sync/atomic"

	"github.com/slidegate/slidegate/internal/connection"
)

// An office is what all limiters on a Connection share.
type office struct {
	conn     *connection.Connection
	masters  masters
	losses   atomic.Int64           // number of script calls that got no reply
	first    atomic.Pointer[string] // name of the first limiter in use
	uses     uses
	requests sync.Pool // of unused *Request
	batches  sync.Pool // of unused *batch
}

// officeOf returns the office of the Connection. The first call opens it.
func officeOf(conn *connection.Connection) *office {
	return conn.Office(func() any {
		o := &office{conn: conn}
		o.masters.office = o
		for i := range o.masters.ranges {
			o.masters.ranges[i].queue = o.masters.newQueue()
		}
		o.uses.of = map[string]int{}
		return o
	}).(*office)
}
