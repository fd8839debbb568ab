package pipeline

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
)

// A Joint holds the additional parts of a request for several keys; the first key is that of the
// request itself. One script call decides on all of them. It never merges, but those of one Group,
// which have the same number of keys, can share a call. Its outcome counts in the circuit breakers
// of all limiters.
type Joint struct {
	Keys   []string
	Units  []string       // the same number for each key
	Each   bool           // each key is decided separately, so that one can fail alone
	Others []*Pipeline    // the pipelines of the other limiters, each once
	Texts  map[int]string // strings that the script replied instead of integers
}

// size returns the number of keys of the request.
func (r *Request) size() int {
	if r.Joint == nil {
		return 1
	}
	return len(r.Joint.Keys)
}

// groups reports whether the request can share a script call with requests for other keys. A Joint
// is already proved, so it can, except on a cluster.
func (r *Request) groups() bool {
	if r.Joint != nil {
		return r.lane.pipeline.conn.up.Load().cluster == nil
	}
	return r.lane.pipeline.proof.holds()
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

// others returns the keys except the first one.
func (j *Joint) others() []string {
	if j == nil {
		return nil
	}
	return j.Keys[1:]
}

// apartTime is how long keys are sent one by one after a call for several was refused.
const apartTime = time.Second

// Joins reports whether one script call can currently serve keys of both limiters that share a
// slot. Outside a cluster, that needs a proof that one server has the keys of both. If a proof is
// due, Joins starts one in the background.
func (p *Pipeline) Joins(other *Pipeline) bool {
	switch {
	case int64(p.conn.elapsed()) < p.apart.Load():
		return false
	case p.conn.up.Load().cluster != nil:
		return true
	case p.name == other.name:
		return p.proof.holds()
	}
	holds := true
	for _, proof := range p.conn.proofs.about(p.name, other.name) { // all of them, since this starts them
		holds = proof.holds() && holds
	}
	return holds
}

// SharesClient reports whether both are on one Connection, which has a client.
func (p *Pipeline) SharesClient(other *Pipeline) bool {
	return p.conn == other.conn && p.conn.up.Load() != nil
}

// SharesSlot reports whether one script call may serve two keys: on a cluster, if they are in one
// hash slot. There must be a client.
func (p *Pipeline) SharesSlot(a, b string) bool {
	return p.conn.up.Load().cluster == nil || keys.Slot(a) == keys.Slot(b)
}

// SetApart records that a server refused a request because it is for several keys. For a second,
// Joins then reports that keys do not join.
func (p *Pipeline) SetApart() { p.apart.Store(int64(p.conn.elapsed() + apartTime)) }

// IsApart reports whether the request did not run because it is for several keys: a server refused
// it for that reason, or it was not sent, and the next connection may lead to another server, for
// which nothing is proved. That says nothing about the health of a server.
func (r *Request) IsApart() bool {
	return r.Joint != nil && r.cause != nil && (refusesKeys(r.cause) || isTryAgain(r.cause) || isUnsent(r.cause))
}

// mayWait reports whether a request that did not run can be sent again: one for several keys, while
// a slot moves, for a quarter of the timeout.
func (r *Request) mayWait(now time.Duration) bool {
	return !r.IsApart() || isTryAgain(r.cause) && (r.call.timeout < 0 || now-r.began <= r.call.timeout/4)
}

// proofs holds what proves that one server has the keys of two limiters, by their names: a proof
// for both or, if they exist, the proofs for each of them and a third limiter.
type proofs struct {
	conn *Connection
	mu   sync.Mutex
	of   map[[2]string][]*proof
}

// about returns what proves it for two limiters. The result of the first call never changes.
func (s *proofs) about(a, b string) []*proof {
	pair := pairOf(a, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[pair] == nil {
		s.of[pair] = s.find(a, b)
	}
	return s.of[pair]
}

func (s *proofs) find(a, b string) []*proof {
	for pair, of := range s.of {
		if third := pair[0]; len(of) == 1 && (third == a || pair[1] == a) {
			if third == a {
				third = pair[1]
			}
			if others := s.of[pairOf(third, b)]; len(others) == 1 {
				return []*proof{of[0], others[0]}
			}
		}
	}
	return []*proof{{conn: s.conn, names: []string{a, b}}}
}

func pairOf(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// uses counts which keys are in use by callers that ask about several.
type uses struct {
	mu sync.Mutex
	of map[string]int
}

// Use marks keys as in use until release is called. It reports whether none of them was in use.
// Attempts on a key that many are using are better merged than decided jointly.
func (p *Pipeline) Use(keys []string) (first bool, release func()) {
	u := &p.conn.uses
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

// ErrOf returns the error of a request as an error of one of its keys alone.
func (r *Request) ErrOf(key string) error {
	var f *Failure
	if errors.As(r.Err, &f) && f.Key != "" {
		return failureOf(key, f.Counted, f.Cause)
	}
	return r.Err
}

// TextOf returns the string at an index of the reply as an error of one of its keys, or nil.
func (r *Request) TextOf(key string, place int) error {
	if text, failed := r.Joint.Texts[place]; failed {
		return explain(&ReplyError{errors.New(text)}, key, r.Reads)
	}
	return nil
}

// name returns how errors name the keys of a request.
func (r *Request) name() string {
	if r.Joint == nil {
		return r.Key
	}
	return strings.Join(r.Joint.Keys, ", ")
}
