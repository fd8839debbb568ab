package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/clock"
	"github.com/slidegate/slidegate/internal/keys"
)

// theScript is what the limiters of these tests send. The server does not read it.
const theScript = "return 'a script'"

// onFakeTime runs a test in a bubble of synctest, with a server. Time passes only while nobody has anything to do.
func onFakeTime(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newServer()) })
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }

// close ends whatever the server still does.
func (s *server) close() {
	s.judgeBy(nil)
	s.next()
	s.releaseDials()
	s.release()
	s.die()
}

// alwaysPipelining sets whether a client sends even a single request by its background goroutines.
func alwaysPipelining(always bool) func(*rueidis.ClientOption) {
	return func(o *rueidis.ClientOption) { o.AlwaysPipelining = always }
}

// ring bounds the pipelines under way on a connection to 2^scale. If there are more, the client's writer waits for a mutex while the
// replies to a pipeline come. A bubble of synctest does not take that for waiting, so time would stand still.
func ring(scale int) func(*rueidis.ClientOption) {
	return func(o *rueidis.ClientOption) { o.RingScaleEachConn = scale }
}

// client returns a client of the server. Each change sets options.
func (s *server) client(t *testing.T, change ...func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	option := rueidis.ClientOption{
		InitAddress: []string{"node:0"}, DialCtxFn: s.dial, ForceSingleClient: true, DisableCache: true, AlwaysPipelining: true,
		PipelineMultiplex: -1, RingScaleEachConn: 6, ReadBufferEachConn: 1 << 12, WriteBufferEachConn: 1 << 12,
	}
	for _, c := range change {
		c(&option)
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.close()
		client.Close()
		pass(time.Minute) // in which the client ends what it repeats on its own
	})
	return client
}

// limiter returns a limiter of five units in a minute and seven in an hour, with a Timeout of a second.
func limiter(t *testing.T, client rueidis.Client, change ...func(*Config)) *Limiter {
	t.Helper()
	cfg := Config{
		Kind: "t", Script: theScript, Name: "test", Timeout: time.Second, MaxUnits: 1 << 53, MergeAsSome: true,
		Clock: clock.Clock{Unit: time.Time.UnixMilli, Time: time.UnixMilli, End: 1 << 47, Year: 6429},
		Text:  func(l Limit) string { return fmt.Sprint(l.Max, " in ", l.Per, " ms") },
	}
	for _, c := range change {
		c(&cfg)
	}
	l, err := New(client, cfg, []Limit{{Max: 5, Per: time.Minute.Milliseconds()}, {Max: 7, Per: time.Hour.Milliseconds()}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rangeOf returns the slot range of an event on a cluster.
func rangeOf(l *Limiter, event string) int { return keys.Slot(l.Key(event)) * slotRanges / keys.Slots }

// A caller is one that asks in a goroutine of its own.
type caller struct {
	Reply
	err  error
	took time.Duration
	over chan struct{}
}

// start starts a caller. Callers that start one after the other arrive in any order.
func start(ctx context.Context, l *Limiter, v Verb, event string, n int64) *caller {
	c := &caller{over: make(chan struct{})}
	go func() {
		defer close(c.over)
		began := time.Now()
		c.Reply, c.err = l.Decide(ctx, v, event, n)
		c.took = time.Since(began)
	}()
	return c
}

// arrive starts a caller, and returns once it waits or is over. It therefore comes before callers that start later.
func arrive(ctx context.Context, l *Limiter, v Verb, event string, n int64) *caller {
	c := start(ctx, l, v, event, n)
	synctest.Wait()
	return c
}

// wait waits until the caller has got its answer.
func (c *caller) wait() *caller {
	<-c.over
	return c
}

// ask is a caller that is over.
func ask(ctx context.Context, l *Limiter, v Verb, event string, n int64) *caller {
	return start(ctx, l, v, event, n).wait()
}

// attemptOne attempts one unit.
func attemptOne(t *testing.T, l *Limiter, event string) *caller {
	t.Helper()
	return ask(t.Context(), l, l.Attempt(), event, 1)
}

// mustAllow attempts one unit, which must be allowed.
func mustAllow(t *testing.T, l *Limiter, event string) {
	t.Helper()
	if c := attemptOne(t, l, event); c.err != nil || !c.Allowed {
		t.Fatalf("%s: allowed %v, %v", event, c.Allowed, c.err)
	}
}

// occupySenders makes the server hold commands, and each sender wait for the reply to one request. What comes next is queued, and
// becomes one batch once the server releases the others.
func occupySenders(t *testing.T, s *server, l *Limiter) (occupiers []*caller) {
	t.Helper()
	s.hold()
	for i := range maxSenders {
		occupiers = append(occupiers, arrive(t.Context(), l, Allow, fmt.Sprint("occupier ", i), 1))
	}
	return occupiers
}

// onEvent returns the script calls on an event.
func onEvent(l *Limiter, calls []command, event string) []command {
	return slices.DeleteFunc(slices.Clone(calls), func(c command) bool { return c.key != l.Key(event) })
}

// wantError checks that an error matches another, names the limiter, and is uncertain only if the other is.
func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || isOutage(want) && errors.Is(got, ErrUncertain) != (want == ErrUncertain) || //nolint:errorlint // want is a sentinel
		want != nil && !strings.HasPrefix(got.Error(), `slidegate: limiter "test": `) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wantEqual checks that two values are equal.
func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Reply{}, command{}), cmpopts.IgnoreFields(Reply{}, "Trace")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// An eachCaller is one that asks about several events at once, in a goroutine of its own.
type eachCaller struct {
	answers []Answer
	took    time.Duration
	over    chan struct{}
}

func startEach(ctx context.Context, l *Limiter, events []string) *eachCaller {
	c := &eachCaller{over: make(chan struct{})}
	go func() {
		defer close(c.over)
		began := time.Now()
		c.answers = l.AttemptEach(ctx, events)
		c.took = time.Since(began)
	}()
	return c
}

// wait waits until the caller has got its answers.
func (c *eachCaller) wait() *eachCaller {
	<-c.over
	return c
}

// fillers returns events that nobody else asks about.
func fillers(n int) (events []string) {
	for i := range n {
		events = append(events, fmt.Sprint("filler ", i))
	}
	return events
}

// fillBatch starts as many callers as make one sender take all that waits.
func fillBatch(t *testing.T, l *Limiter) (callers []*caller) {
	t.Helper()
	for _, event := range fillers(crowd) {
		callers = append(callers, arrive(t.Context(), l, Allow, event, 1))
	}
	return callers
}
