package pipeline

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slidegate/slidegate/lua"
)

// A proof shows that one server has all keys of a limiter. Only then does a script call for several
// of them count each where calls for it alone look for it. A proxy can divide the keys among
// servers, and still send such a call to the server of its first key, without an error. It can do
// so only for limiters of some names. So nothing is assumed: see probe.lua.
//
// A proof for two names shows that one server has the keys of both, for calls for keys of several
// limiters.
type proof struct {
	conn  *Connection
	names []string // of limiters

	mu      sync.Mutex
	found   bool          // the last attempt succeeded
	losses  int64         // the number of the Connection's losses when it started
	running bool          // an attempt is running
	next    time.Duration // when the next attempt may start, relative to the creation of the Connection
	pause   time.Duration // before next, after a failure
}

const (
	proofRenewal  = 10 * time.Second // a proof is renewed after this time, and holds for the same time again
	minProofPause = time.Second      // after a failure; doubled each time
	maxProofPause = time.Minute

	// If one of many servers has a twentieth of the keys, 64 keys miss it in 4 % of all proofs, and
	// 256 in 2 of a million. A renewal needs fewer, because it uses new ones each time.
	firstProbes   = 256
	renewalProbes = 64
)

var probeScript = NewScript(lua.Probe)

// holds reports whether it is proved that one server has all keys. If a proof is due, holds starts
// one in the background.
func (p *proof) holds() bool {
	if p.conn.up.Load().cluster != nil {
		return false
	}
	now, losses := p.conn.elapsed(), p.conn.losses.Load()
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

// make attempts a proof. It fails if a connection was lost since the count was losses.
func (p *proof) make(renews bool, losses int64) {
	n := firstProbes
	if renews {
		n = renewalProbes
	}
	found := p.conn.findsProbes(p.names, n*len(p.names))
	now := p.conn.elapsed()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running = false; found && p.conn.losses.Load() == losses {
		p.found, p.losses, p.next, p.pause = true, losses, now+proofRenewal, 0
	} else {
		p.fail(now)
	}
}

// fail sets when to try again. The mutex must be held.
func (p *proof) fail(now time.Duration) {
	p.pause = min(max(2*p.pause, minProofPause), maxProofPause)
	p.found, p.next = false, now+p.pause
}

// noteLoss ends proofs after a call: all proofs of the Connection if it got no reply, since the
// next connection may lead elsewhere, and those of the limiter if a server refused it because of
// its keys.
func (c *ScriptCall) noteLoss(conn *Connection) {
	switch {
	case c.err == nil || errors.Is(c.err, context.Canceled):
	case !errors.As(c.err, new(*ReplyError)):
		conn.losses.Add(1)
	case c.parts > 1 && refusesKeys(c.err):
		c.first.lane.pipeline.proof.refuted()
	}
}

// refuted records that a server refused a call because of its keys.
func (p *proof) refuted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(p.conn.elapsed())
}

// findsProbes marks n new keys of limiters of these names with one script call, and reports whether
// calls for each of them find the marks.
func (c *Connection) findsProbes(names []string, n int) bool {
	ctx, client, value := context.Background(), c.client(), rand.Text()
	if probeScript.load(ctx, client) != nil {
		return false
	}
	mark := &ScriptCall{Command: "EVAL", Script: probeScript.source, Verb: "mark", Time: value}
	for i := range n {
		mark.Keys = append(mark.Keys, fmt.Sprintf("%s:{~%s.%d}:p", names[i%len(names)], value[:8], i))
	}
	if client.Send(ctx, []*ScriptCall{mark}); mark.err != nil {
		return false
	}
	finds := make([]*ScriptCall, n)
	for i := range finds {
		finds[i] = &ScriptCall{Command: "EVALSHA", Script: *probeScript.known.Load(), Keys: mark.Keys[i : i+1], Verb: "find", Time: value}
	}
	client.Send(ctx, finds)
	for _, find := range finds {
		if find.err != nil || len(find.reply) != 1 || find.reply[0] != 1 {
			return false
		}
	}
	return true
}
