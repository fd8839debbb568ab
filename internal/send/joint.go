package send

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/keys"
)

// A Joint holds the additional fields of a request for several keys, which are decided in one
// script call. The first of the Keys is also the request's Key. Such a request is never merged with
// others. But requests of the same Group, which have the same number of keys, can share a script
// call. The outcome counts in the circuit breakers of all limiters.
type Joint struct {
	Keys   []string
	Units  []string    // the same number of arguments for each key
	Each   bool        // each key is decided separately, so that a single key can fail
	Others []*Pipeline // the pipelines of the other limiters, without duplicates
}

// size returns the number of the request's keys.
func (r *Request) size() int {
	if r.Joint == nil {
		return 1
	}
	return len(r.Joint.Keys)
}

// groups reports whether the request can share a script call with requests for other keys. A
// request with a Joint can, except on a cluster, because it is already proved that one server has
// all keys.
func (r *Request) groups() bool {
	if r.Joint != nil {
		return r.office.conn.Cluster() == nil
	}
	return r.shard.lane.pipeline.use().proof.holds()
}

// units returns the number of arguments for the units of the request.
func (r *Request) units() int {
	switch {
	case r.Joint != nil:
		return len(r.Joint.Units)
	case r.Units == 0:
		return 0
	}
	return 1
}

// others returns all keys except the first, or nil if j is nil.
func (j *Joint) others() []string {
	if j == nil {
		return nil
	}
	return j.Keys[1:]
}

// apartTime is how long keys are sent separately after a server has refused a call for several
// keys.
const apartTime = time.Second

// Joins reports whether one script call can, at the moment, serve keys of both limiters in the same
// slot. Outside a cluster, that requires a proof that one server has the keys of both limiters. If
// a proof is due, Joins starts it in the background.
func (p *Pipeline) Joins(other *Pipeline) bool {
	switch {
	case int64(p.office.conn.Elapsed()) < p.apart.Load():
		return false
	case p.office.conn.Cluster() != nil:
		return true
	}
	holds := p.use().proof.holds()
	return other.use().proof.holds() && holds // in this order, so that both proofs start if they are due
}

// SharesClient reports whether p and other use the same Connection, and it has a client.
func (p *Pipeline) SharesClient(other *Pipeline) bool {
	return p.office == other.office && p.office.conn.IsUp()
}

// SharesSlot reports whether one script call may serve the keys a and b. On a cluster, they must be
// in the same hash slot. There must be a client.
func (p *Pipeline) SharesSlot(a, b string) bool {
	return p.office.conn.Cluster() == nil || keys.Slot(a) == keys.Slot(b)
}

// SetApart records that a server refused a request because it has several keys. Joins then returns
// false for a second.
func (p *Pipeline) SetApart() { p.apart.Store(int64(p.office.conn.Elapsed() + apartTime)) }

// IsApart reports whether the request has several keys and did not run, so that its keys should be
// sent separately. Either a server refused it because of its keys, or it was not sent: then the
// next connection may lead to another server, for which nothing is proved. Neither case indicates a
// failure of Redis.
func (r *Request) IsApart() bool {
	switch {
	case r.Joint == nil || r.cause == nil:
		return false
	case connection.Replied(r.cause):
		return connection.RefusesKeys(r.cause) || connection.Replied(r.cause, "TRYAGAIN")
	}
	return connection.NotRun(r.cause)
}

// mayWait reports whether a request that did not run may be sent again at the time now. A request
// for several keys may only while a slot is moving, and only for a quarter of the timeout.
func (r *Request) mayWait(now time.Duration) bool {
	return !r.IsApart() || connection.Replied(r.cause, "TRYAGAIN") && (r.timeout < 0 || now-r.began <= r.timeout/4)
}

// uses counts, for each key, the callers that are using it in a request for several keys.
type uses struct {
	mu sync.Mutex
	of map[string]int
}

// Use marks keys as in use until release is called. It reports whether none of them was in use
// before. If many callers use a key, it is better to merge their attempts than to decide them
// jointly.
func (p *Pipeline) Use(keys []string) (first bool, release func()) {
	u := &p.office.uses
	u.mu.Lock()
	defer u.mu.Unlock()
	first = true
	for _, key := range keys {
		first = first && u.of[key] == 0
		u.of[key]++
	}
	return first, func() { u.release(keys) }
}

func (u *uses) release(keys []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range keys {
		if u.of[key]--; u.of[key] == 0 {
			delete(u.of, key)
		}
	}
}

// ErrOf returns the error of the request as an error for the given key only.
func (r *Request) ErrOf(key string) error {
	var f *health.Failure
	if errors.As(r.Err, &f) && f.Key != "" {
		return health.FailureOf(key, f.Counted, f.Cause)
	}
	return r.Err
}

// TextOf returns the string at the given index of the reply as an error for key, or nil if there is
// no string at that index.
func (r *Request) TextOf(key string, index int) error {
	if text, failed := r.Texts[index]; failed {
		return health.Explain(&connection.ReplyError{Cause: errors.New(text)}, key, r.Reads)
	}
	return nil
}

// name returns the keys of the request as errors name them.
func (r *Request) name() string {
	if r.Joint == nil {
		return r.Key
	}
	return strings.Join(r.Joint.Keys, ", ")
}
