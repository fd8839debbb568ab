package send

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/lua"
)

// A proof shows that one server has all keys of a limiter, and those of the first limiter on the
// Connection. Only then does a script call for several keys count each key where a call for that key
// alone would count it. Two limiters with a proof can also share a call. A proxy can distribute keys
// over several servers and still send a call for several keys to the server of the first key, without
// an error. It can even do so for limiters of some names only. So nothing is assumed: see probe.lua.
type proof struct {
	office *office
	names  []string // of the limiter and, unless it is the same, of the first limiter

	mu      sync.Mutex
	found   bool          // the last attempt succeeded
	losses  int64         // the office's losses when that attempt started
	running bool          // an attempt is running
	next    time.Duration // the earliest time for the next attempt, relative to the creation of the Connection
	pause   time.Duration // the last pause after a failure; 0 after a success
}

const (
	proofRenewal  = 10 * time.Second // a proof is renewed after this time, and holds for twice this time
	minProofPause = time.Second      // after the first failure; doubled after each further one
	maxProofPause = time.Minute

	// If one of several servers has a twentieth of the keys, 64 random keys miss that server in 4%
	// of all proofs, and 256 keys in two out of a million. A renewal needs fewer keys, because each
	// renewal uses new ones.
	firstProbes   = 256
	renewalProbes = 64
)

// newProof returns the proof for the limiter with the given name.
func (o *office) newProof(name string) proof {
	o.first.CompareAndSwap(nil, &name)
	if first := *o.first.Load(); first != name {
		return proof{office: o, names: []string{name, first}}
	}
	return proof{office: o, names: []string{name}}
}

// holds reports whether it is currently proved that one server has all keys. If an attempt is due,
// holds starts it in the background.
func (p *proof) holds() bool {
	if p.office.conn.Cluster() != nil {
		return false
	}
	now, losses := p.office.conn.Elapsed(), p.office.losses.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found && p.losses != losses {
		p.fail(now)
	}
	holds := p.found && now < p.next+proofRenewal
	if !p.running && now >= p.next {
		p.running = true
		go p.make(holds, losses)
	}
	return holds
}

// make attempts a proof. The attempt fails if the Connection's count of losses is no longer losses.
func (p *proof) make(renews bool, losses int64) {
	n := firstProbes
	if renews {
		n = renewalProbes
	}
	found := p.office.findsProbes(p.names, n*len(p.names))
	now := p.office.conn.Elapsed()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running = false; found && p.office.losses.Load() == losses {
		p.found, p.losses, p.next, p.pause = true, losses, now+proofRenewal, 0
	} else {
		p.fail(now)
	}
}

// fail ends the proof, and sets when to try again. The caller must hold the mutex.
func (p *proof) fail(now time.Duration) {
	p.pause = min(max(2*p.pause, minProofPause), maxProofPause)
	p.found, p.next = false, now+p.pause
}

// noteLoss ends proofs after a failed call. If the call got no reply, it ends all proofs of the
// Connection, since the next connection may lead to another server. If a server refused the call
// because of its keys, it ends the limiter's proof.
func (c *scriptCall) noteLoss(o *office) {
	switch {
	case c.Err == nil || errors.Is(c.Err, context.Canceled):
	case !connection.Replied(c.Err):
		o.losses.Add(1)
	case c.parts > 1 && connection.RefusesKeys(c.Err):
		c.first.shard.lane.pipeline.use().proof.refuted()
	}
}

// refuted ends the proof because a server refused a call for several keys.
func (p *proof) refuted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(p.office.conn.Elapsed())
}

// findsProbes marks n new keys of the named limiters in one script call. It reports whether
// separate calls for each key find all marks.
func (o *office) findsProbes(names []string, n int) bool {
	ctx, client, value := context.Background(), o.conn.Client(), rand.Text()
	mark := &connection.ScriptCall{Command: "EVAL", Script: lua.Probe.Source, Verb: "mark", Time: value}
	for i := range n {
		mark.Keys = append(mark.Keys, fmt.Sprintf("%s:{~%s.%d}:p", names[i%len(names)], value[:8], i))
	}
	if client.Send(ctx, []*connection.ScriptCall{mark}); mark.Err != nil {
		return false
	}
	finds := make([]*connection.ScriptCall, n)
	for i := range finds {
		finds[i] = &connection.ScriptCall{Command: "EVALSHA", Script: lua.Probe.Hash, Keys: mark.Keys[i : i+1], Verb: "find", Time: value}
	}
	client.Send(ctx, finds)
	for _, find := range finds {
		if find.Err != nil || len(find.Reply) != 1 || find.Reply[0] != 1 {
			return false
		}
	}
	return true
}
