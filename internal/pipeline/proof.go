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

// A proof shows that one server has all keys of a limiter. Only then does a script call about
// several of them count each where calls about it alone look for it. A proxy can divide the keys
// among servers, and still send such a call to the server of its first key, without an error. It
// can do so for limiters of some names alone. So nothing is assumed: see probe.lua.
type proof struct {
	mu      sync.Mutex
	found   bool          // the last one succeeded
	losses  int64         // that the Connection had when it began
	running bool          // one is being made
	next    time.Duration // when the next one may begin, since the Connection was made
	pause   time.Duration // before next, after a failure
}

const (
	proofRenewal  = 10 * time.Second // a proof is renewed after this time, and holds as long again
	minProofPause = time.Second      // after a failure; doubled each time
	maxProofPause = time.Minute

	// If one of many servers has a twentieth of the keys, 64 keys miss it in 4 % of all proofs, and
	// 256 in 2 of a million. A renewal takes fewer, as it has new ones each time.
	firstProbes   = 256
	renewalProbes = 64
)

var probeScript = NewScript(lua.Probe)

// isOnOneServer reports whether it is proved that one server has all keys of the limiter. If it is
// time for a proof, one begins in the background.
func (p *Pipeline) isOnOneServer() bool {
	if p.conn.up.Load().cluster != nil {
		return false
	}
	of, now, losses := &p.proof, p.conn.elapsed(), p.conn.losses.Load()
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.found && of.losses != losses {
		of.fail(now)
	}
	holds := of.found && now < of.next+proofRenewal
	if !of.running && now >= of.next {
		of.running = true
		go p.prove(holds, losses)
	}
	return holds
}

// prove makes a proof. It does not hold if a connection was lost since a number of losses.
func (p *Pipeline) prove(renews bool, losses int64) {
	n := firstProbes
	if renews {
		n = renewalProbes
	}
	found := p.conn.findsProbes(p.name, n)
	of, now := &p.proof, p.conn.elapsed()
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.running = false; found && p.conn.losses.Load() == losses {
		of.found, of.losses, of.next, of.pause = true, losses, now+proofRenewal, 0
	} else {
		of.fail(now)
	}
}

// fail sets when to try again. The mutex must be held.
func (p *proof) fail(now time.Duration) {
	p.pause = min(max(2*p.pause, minProofPause), maxProofPause)
	p.found, p.next = false, now+p.pause
}

// noteLoss ends proofs after a call: all of the Connection if it got no reply, since the next
// connection may lead elsewhere, and that of the limiter if a server refused it because of its keys.
func (c *ScriptCall) noteLoss(conn *Connection) {
	switch {
	case c.err == nil || errors.Is(c.err, context.Canceled):
	case !errors.As(c.err, new(*ReplyError)):
		conn.losses.Add(1)
	case c.parts > 1 && refusesKeys(c.err):
		p := &c.first.lane.pipeline.proof
		p.mu.Lock()
		defer p.mu.Unlock()
		p.fail(conn.elapsed())
	}
}

// findsProbes marks n new keys by one script call, and reports whether calls about each of them
// find the marks.
func (c *Connection) findsProbes(name string, n int) bool {
	ctx, client, value := context.Background(), c.client(), rand.Text()
	if probeScript.load(ctx, client) != nil {
		return false
	}
	mark := &ScriptCall{Command: "EVAL", Script: probeScript.source, Verb: "mark", Time: value}
	for i := range n {
		mark.Keys = append(mark.Keys, fmt.Sprintf("%s:{~%s.%d}:p", name, value[:8], i))
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
