package send

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
	"github.com/slidegate/slidegate/lua"
)

// A line sends a test's requests. Each request counts one unit of an event.
type line struct {
	*Pipeline
	Timeout time.Duration
	script  *lua.Script
	log     *reportLog
}

// newLine returns a line with a Timeout of a second.
func newLine(t *testing.T, client rueidis.Client, change ...func(*line)) *line {
	t.Helper()
	l := &line{Timeout: time.Second, script: servertest.Script, log: &reportLog{}}
	for _, c := range change {
		c(l)
	}
	l.Pipeline = New(connection.OnRueidis(client), "test", l.log.recorder())
	return l
}

// Key returns the key of event.
func (l *line) Key(event string) string { return "test:{" + event + "}" }

// request returns a request for one unit of event.
func (l *line) request(event string) *Request {
	r := l.NewRequest()
	r.Script, r.Key, r.Verb, r.Units, r.Group = l.script, l.Key(event), servertest.Tally, 1, "units"
	r.Merge = Merge{Verb: r.Verb, Script: r.Script}
	return r
}

// An attempt makes a request in its own goroutine.
type attempt struct {
	count int64 // the count of the event's units, including the caller's
	err   error
	took  time.Duration
	over  chan struct{}
}

// start starts a caller. Callers started one after the other can arrive in any order.
func start(ctx context.Context, l *line, event string) *attempt {
	c := &attempt{over: make(chan struct{})}
	go func() {
		defer close(c.over)
		began, r := time.Now(), l.request(event)
		defer r.Free()
		l.Do(ctx, l.Timeout, r)
		c.take(r)
		c.took = time.Since(began)
	}()
	return c
}

// take takes the outcome of r, a request for one unit.
func (c *attempt) take(r *Request) {
	if c.err = r.Err; r.Err != nil {
		return
	}
	if len(r.Reply) == 0 {
		c.err = r.Explain(errors.New("an empty reply"))
	} else {
		c.count = r.Reply[0] + r.First
	}
}

// arrive starts a caller, and returns once the caller waits or is done. So the caller arrives
// before any caller that is started later.
func arrive(ctx context.Context, l *line, event string) *attempt {
	c := start(ctx, l, event)
	synctest.Wait()
	return c
}

// wait waits until the caller has its answer.
func (c *attempt) wait() *attempt {
	<-c.over
	return c
}

// ask starts a caller, and waits for its answer.
func ask(ctx context.Context, l *line, event string) *attempt { return start(ctx, l, event).wait() }

// askOne makes a request for one unit, and waits for the answer.
func askOne(t *testing.T, l *line, event string) *attempt {
	t.Helper()
	return ask(t.Context(), l, event)
}

// mustCount is like askOne, but fails the test if there is an error.
func mustCount(t *testing.T, l *line, event string) {
	t.Helper()
	if c := askOne(t, l, event); c.err != nil || c.count < 1 {
		t.Fatalf("%s: %d counted, %v", event, c.count, c.err)
	}
}

// askMany requests one unit of each event at the same time.
func askMany(ctx context.Context, l *line, events []string) (callers []*attempt) {
	for _, event := range events {
		callers = append(callers, start(ctx, l, event))
	}
	for _, c := range callers {
		c.wait()
	}
	return callers
}

// occupySenders makes the server hold commands, and makes each sender wait for the reply to one
// request. Later requests are queued, and form one batch once the server releases the commands.
func occupySenders(t *testing.T, s *servertest.Server, l *line) (occupiers []*attempt) {
	t.Helper()
	s.Hold()
	for i := range maxSenders {
		occupiers = append(occupiers, arrive(t.Context(), l, fmt.Sprint("occupier ", i)))
	}
	return occupiers
}

// onEvent returns those of the given script calls that are for event.
func onEvent(l *line, calls []servertest.Command, event string) []servertest.Command {
	return slices.DeleteFunc(slices.Clone(calls), func(c servertest.Command) bool { return c.Key != l.Key(event) })
}

// wantError checks that got matches want, and that it is ErrUncertain only if want is.
func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || health.IsOutage(want) && errors.Is(got, health.ErrUncertain) != (want == health.ErrUncertain) { //nolint:errorlint // want is a sentinel
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wantEqual checks that got equals want.
func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// numbered returns n events.
func numbered(n int) (events []string) {
	for i := range n {
		events = append(events, fmt.Sprint("event ", i))
	}
	return events
}

// fillBatch starts as many callers as make a sender yield, so that one sender takes all waiting
// requests.
func fillBatch(t *testing.T, l *line) (callers []*attempt) {
	t.Helper()
	for i := range yieldThreshold {
		callers = append(callers, arrive(t.Context(), l, fmt.Sprint("filler ", i)))
	}
	return callers
}

// wantIdle checks that no request waits or is in flight.
func wantIdle(t *testing.T, l *line) {
	t.Helper()
	for i, q := range l.office.masters.queues {
		q.mu.Lock()
		wantEqual(t, fmt.Sprint("senders of queue ", i), q.senders, 0)
		wantEqual(t, fmt.Sprint("lanes that wait in queue ", i), len(q.lanes), 0)
		wantEqual(t, fmt.Sprint("waiting in queue ", i), q.waiting, 0)
		wantEqual(t, fmt.Sprint("in flight in queue ", i), q.inFlight, 0)
		wantEqual(t, fmt.Sprint("busy lanes in queue ", i), q.busy, 0)
		q.mu.Unlock()
		wantEqual(t, fmt.Sprint("abandoned in queue ", i), int(l.shard(q).abandoned.Load()), 0)
	}
}

// first returns the state for the queue of a server that is not a cluster.
func (l *line) first() *shard { return l.shard(l.office.masters.ranges[0].queue) }

// A reportLog records a line's reports.
type reportLog struct {
	mu      sync.Mutex
	entries []string
}

// recorder returns a function that records reports.
func (d *reportLog) recorder() health.Report {
	made := time.Now()
	return func(_ context.Context, kind string, _ *health.Failure) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.entries = append(d.entries, fmt.Sprintf("%v: %s", time.Since(made), kind))
	}
}

// read returns the reports since the last call of read.
func (d *reportLog) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries := d.entries
	d.entries = nil
	return entries
}

// wantOpen checks that the caller's request was refused because the circuit breaker is open.
func wantOpen(t *testing.T, c *attempt) {
	t.Helper()
	wantError(t, "breaker open", c.err, health.ErrOutage)
	if c.took != 0 || !strings.Contains(c.err.Error(), "circuit breaker is open") {
		t.Errorf("after %v: %v", c.took, c.err)
	}
}
