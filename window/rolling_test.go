package window_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

// TestRollingChange checks that processes with an earlier window.lua and processes with the present
// scripts can use the same records at the same time. In the order in which the server runs the
// calls, every reply must be that of the exact log: so no window holds more than it may, and nothing
// is denied without need.
func TestRollingChange(t *testing.T) {
	hourly := fmt.Sprintf("%d/1h", redistest.UnlessShort(1000, 200)) // denies on a slow machine, too
	each := redistest.UnlessShort(300, 100)
	for name, row := range map[string]struct {
		limits  []window.Limit
		denials bool
		each    int // calls of each process
	}{
		"exact":         {limits: parsed("20/20ms", "60/100ms", hourly), each: each},
		"buckets":       {limits: parsed("30/40ms@5ms", "150/200ms", hourly), each: each},
		"denials count": {limits: parsed("40/20ms", "160/100ms@10ms", "200/1h"), denials: true, each: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &rolling{client: redistest.Client(t), key: redistest.Key(t), limits: row.limits, denials: row.denials, each: row.each, logs: [2]*exactLog{newExactLog(), newExactLog()}}
			r.load(t)
			r.check(t)
		})
	}
}

// rolling holds the calls that processes with different scripts make for two events.
type rolling struct {
	client  rueidis.Client
	key     string // the start of each key
	limits  []window.Limit
	denials bool // denied attempts count
	each    int

	mu    sync.Mutex
	calls []*scriptCall
	logs  [2]*exactLog // of the events, after the calls that have been checked
}

// A scriptCall is a call of a script for an event, or for both events if the verb is joint.
type scriptCall struct {
	order   int64 // the place in the order in which the server ran the calls
	earlier bool  // the script is the earlier one
	verb    string
	event   int
	n, now  int64 // now is 0 until the reply if the call uses the time of the server
	since   int64 // for a refund or undo: the time of the call that counted
	reply   []int64
}

// load lets eight processes make calls. Every second one has the earlier script.
func (r *rolling) load(t *testing.T) {
	t.Helper()
	earlier := lua.New(string(must(os.ReadFile("../lua/testdata/window-c4e594e.lua"))))
	redistest.AtOnce(8, func(i int) {
		rng := rand.New(rand.NewPCG(uint64(i), 5))
		client, end := r.client.Dedicate()
		defer end()
		var counted []*scriptCall
		for range r.each {
			c := r.draw(rng, &counted)
			script := lua.WindowFor(c.verb)
			if c.earlier = i%2 == 0; c.earlier {
				script = earlier
			}
			if err := r.run(t, client, c, script.Source); err != nil {
				t.Errorf("%+v: %v", *c, err)
				return
			}
			if (c.verb == "allow" || c.verb == "some") && c.reply[0] > 0 {
				counted = append(counted, c)
			}
			<-time.After(time.Duration(rng.IntN(8000)) * time.Microsecond)
		}
	})
}

// draw returns a random call. A refund or undo gives back what the last call in counted has counted,
// and removes that call.
func (r *rolling) draw(rng *rand.Rand, counted *[]*scriptCall) *scriptCall {
	verbs := []string{"allow", "allow", "allow", "allow", "some", "some", "some", "peek", "joint", "joint", "countsome"}
	if r.denials {
		verbs = []string{"count", "count", "counteach", "countsome", "peek"}
	}
	c := &scriptCall{verb: verbs[rng.IntN(len(verbs))], event: rng.IntN(2), n: 1 + rng.Int64N(4)}
	if rng.IntN(3) == 0 {
		c.now = time.Now().UnixMilli()
	}
	if i := len(*counted) - 1; i >= 0 && rng.IntN(4) == 0 {
		old := (*counted)[i]
		*counted = (*counted)[:i]
		c.verb, c.event, c.since, c.n = []string{"refund", "undo"}[rng.IntN(2)], old.event, old.reply[1], old.n
		if old.verb == "some" {
			c.n = old.reply[0]
		}
		c.now = time.Now().UnixMilli() // the reply does not contain it
	}
	return c
}

// args returns the arguments of a call.
func (r *rolling) args(c *scriptCall) []string {
	args, n := []string{c.verb, ""}, strconv.FormatInt(c.n, 10)
	if c.now != 0 {
		args[1] = strconv.FormatInt(c.now, 10)
	}
	limits := r.rules(c)
	position := append([]string{strconv.Itoa(len(limits) / 3)}, limits...)
	switch since := strconv.FormatInt(c.since, 10); c.verb {
	case "joint":
		return slices.Concat(args, []string{n, n, "2"}, position, position)
	case "undo":
		return slices.Concat(args, []string{n, since, "1"}, position)
	case "refund":
		return slices.Concat(args, []string{n}, limits, []string{since})
	}
	return slices.Concat(args, []string{n}, limits)
}

// rules returns Per, Max and Resolution of each limit.
func (r *rolling) rules(c *scriptCall) (all []string) {
	for _, rule := range rulesOf(r.limits, r.denials || c.verb == "countsome") {
		all = append(all, fmt.Sprint(rule.per), fmt.Sprint(rule.max), fmt.Sprint(rule.width))
	}
	return all
}

// run runs a call and notes its reply and its place in the order.
func (r *rolling) run(t *testing.T, client rueidis.DedicatedClient, c *scriptCall, source string) error {
	t.Helper()
	keys := []string{fmt.Sprint(r.key, c.event)}
	if c.verb == "joint" {
		keys = []string{fmt.Sprint(r.key, 0), fmt.Sprint(r.key, 1)}
	}
	b := client.B()
	results := client.DoMulti(t.Context(), b.Multi().Build(), b.Incr().Key(r.key+"order").Build(),
		b.Eval().Script(source).Numkeys(int64(len(keys))).Key(keys...).Arg(r.args(c)...).Build(), b.Exec().Build())
	both, err := results[3].ToArray()
	if err != nil {
		return err
	}
	c.order = must(both[0].AsInt64())
	if c.reply, err = both[1].AsIntSlice(); err != nil {
		return err
	}
	if c.now == 0 {
		c.now = c.reply[1]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	return nil
}

// check compares the replies, in the order in which the server ran the calls, with the exact logs.
func (r *rolling) check(t *testing.T) {
	t.Helper()
	slices.SortFunc(r.calls, func(a, b *scriptCall) int { return cmp.Compare(a.order, b.order) })
	allowed, denied := map[bool]int{}, 0
	for _, c := range r.calls {
		if diff := gocmp.Diff(r.want(c), c.reply); diff != "" {
			t.Fatalf("%+v (-want +got)\n%s", *c, diff)
		}
		if c.reply[0] > 0 {
			allowed[c.earlier]++
		} else {
			denied++
		}
	}
	t.Logf("%d calls; allowed by the earlier script: %d, by others: %d; denied: %d", len(r.calls), allowed[true], allowed[false], denied)
	if min(allowed[true], allowed[false], denied) < len(r.calls)/50 {
		t.Error("weak test")
	}
}

// want returns the correct reply to the next call, and records what the call counts.
func (r *rolling) want(c *scriptCall) []int64 {
	log := r.logs[c.event]
	switch c.verb {
	case "refund", "undo":
		back := window.Decision{Counted: c.n, At: time.UnixMilli(c.since)}
		for _, l := range r.limits {
			back.Usage = append(back.Usage, window.Usage{Limit: l})
		}
		log.refund(r.limits, back, c.now)
		return c.reply // later replies show whether it is correct
	case "joint":
		return r.wantJoint(c)
	case "counteach":
		all := []int64{0, 0}
		for range c.n {
			one := integersOf("count", log.decide(r.limits, "allow", 1, c.now, true))
			all[0], all[1] = all[0]+one[0], one[1]
			all = append(all, one[2:]...)
		}
		return all
	}
	verb := map[string]string{"count": "allow", "some": "upTo", "countsome": "charge"}[c.verb]
	return integersOf(c.verb, log.decide(r.limits, cmp.Or(verb, c.verb), c.n, c.now, r.denials))
}

// wantJoint is like want, for a joint call. The rows of an event that would be allowed, but is not
// counted, are not checked.
func (r *rolling) wantJoint(c *scriptCall) (all []int64) {
	verb, width := "allow", 2+3*len(r.limits)
	for _, log := range r.logs {
		if !log.decide(r.limits, "peek", c.n, c.now, false).Allowed {
			verb = "peek"
		}
	}
	for i, log := range r.logs {
		one := integersOf("joint", log.decide(r.limits, verb, c.n, c.now, false))
		if verb == "peek" && log.repair(c.now) {
			log.forget(rulesOf(r.limits, false), c.now)
		}
		if verb == "peek" && one[0] == 1 {
			one = append(one[:1], c.reply[i*width:][1:width]...)
		}
		all = append(all, one...)
	}
	return all
}

// integersOf returns the reply of a script that makes a decision.
func integersOf(verb string, d window.Decision) []int64 {
	all := []int64{d.Granted, d.At.UnixMilli()}
	if verb != "some" && verb != "countsome" {
		all[0] = min(1, d.Granted)
	}
	for _, u := range d.Usage {
		all = append(all, u.Used, u.RetryAfter.Milliseconds(), u.ResetAfter.Milliseconds())
	}
	return all
}
