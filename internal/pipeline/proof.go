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

// A proof shows that the Redis of a Connection is one server. Only then does a script call about
// several keys count each of them where calls about it alone look for it. A proxy can divide the
// keys among servers, and still send such a call to the server of its first key, without an error.
// So nothing is assumed: see probe.lua.
type proof struct {
	mu      sync.Mutex
	holds   bool
	running bool          // a proof is being made
	ended   int           // how many times an error ended a proof
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

// isOneServer reports whether it is proved that Redis is one server. If it is time for a proof, one
// begins in the background, by keys of the limiter of this name.
func (c *Connection) isOneServer(name string) bool {
	if c.up.Load().cluster != nil {
		return false
	}
	p := &c.proof
	p.mu.Lock()
	defer p.mu.Unlock()
	now := c.elapsed()
	p.holds = p.holds && now < p.next+proofRenewal
	if !p.running && now >= p.next {
		p.running = true
		go c.prove(name, p.holds, p.ended)
	}
	return p.holds
}

// prove makes a proof, unless an error ends it meanwhile.
func (c *Connection) prove(name string, renews bool, ended int) {
	n := firstProbes
	if renews {
		n = renewalProbes
	}
	found := c.findsProbes(name, n)
	p, now := &c.proof, c.elapsed()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running = false; found && p.ended == ended {
		p.holds, p.next, p.pause = true, now+proofRenewal, 0
	} else {
		p.fail(now)
	}
}

// fail sets when to try again.
func (p *proof) fail(now time.Duration) {
	p.pause = min(max(2*p.pause, minProofPause), maxProofPause)
	p.holds, p.next = false, now+p.pause
}

// endProof ends the proof after a call that got no reply, since the next connection may lead
// elsewhere, or that a server refused because of its keys.
func (c *Connection) endProof(after *ScriptCall) {
	refused := after.parts > 1 && refusesKeys(after.err)
	if after.err == nil || !refused && (errors.As(after.err, new(*ReplyError)) || errors.Is(after.err, context.Canceled)) {
		return
	}
	p, now := &c.proof, c.elapsed()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended++; p.holds {
		p.fail(now)
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
