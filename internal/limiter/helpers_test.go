package limiter

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
	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
	"github.com/slidegate/slidegate/lua"
)

// Limits of package send.
const (
	senders  = 4 // the most, for each queue
	together = 3 // number of requests that form one batch
)

// limiter returns a limiter that allows five units per minute and seven per hour, with a Timeout of
// a second.
func limiter(t *testing.T, client rueidis.Client, change ...func(*Config)) *Limiter {
	t.Helper()
	cfg := Config{
		Kind: "t", Script: func(verb string) *lua.Script { return scripts[verb] }, Name: "test", Timeout: time.Second, MaxUnits: 1 << 53, MergeAsSome: true,
		Clock: clock.Millis(nil),
		Text:  func(l Limit) string { return fmt.Sprint(l.Max, " in ", l.Per, " ms") },
	}
	for _, c := range change {
		c(&cfg)
	}
	l, err := New(connection.OnRueidis(client), cfg, []Limit{{Max: 5, Per: time.Minute.Milliseconds()}, {Max: 7, Per: time.Hour.Milliseconds()}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// scripts holds a script for each verb.
var scripts = map[string]*lua.Script{}

func init() {
	for _, verb := range []string{"allow", "count", "some", "countsome", "peek", verbEach, verbCountEach, verbInspect, verbRefund, verbReset} {
		scripts[verb] = lua.New("return '" + verb + "'")
	}
}

// A caller makes a request in its own goroutine.
type caller struct {
	Reply
	err  error
	took time.Duration
	over chan struct{}
}

// start starts a caller. Callers started one after the other can arrive in any order.
func start(ctx context.Context, l *Limiter, v Verb, event string, n int64) *caller {
	c := &caller{over: make(chan struct{})}
	go func() {
		defer close(c.over)
		began := time.Now()
		c.err = l.Decide(ctx, &c.Reply, v, event, n)
		c.took = time.Since(began)
	}()
	return c
}

// arrive starts a caller, and returns once the caller waits or is done. So the caller arrives
// before any caller that is started later.
func arrive(ctx context.Context, l *Limiter, v Verb, event string, n int64) *caller {
	c := start(ctx, l, v, event, n)
	synctest.Wait()
	return c
}

// wait waits until the caller has its answer.
func (c *caller) wait() *caller {
	<-c.over
	return c
}

// ask starts a caller, and waits for its answer.
func ask(ctx context.Context, l *Limiter, v Verb, event string, n int64) *caller {
	return start(ctx, l, v, event, n).wait()
}

// attemptOne makes an attempt for one unit.
func attemptOne(t *testing.T, l *Limiter, event string) *caller {
	t.Helper()
	return ask(t.Context(), l, Allow, event, 1)
}

// mustAllow makes an attempt for one unit, which must be allowed.
func mustAllow(t *testing.T, l *Limiter, event string) {
	t.Helper()
	if c := attemptOne(t, l, event); c.err != nil || !c.Allowed {
		t.Fatalf("%s: allowed %v, %v", event, c.Allowed, c.err)
	}
}

// occupySenders makes the server hold commands, and makes each sender wait for the reply to one
// request. Later requests are queued, and form one batch once the server releases the commands.
func occupySenders(t *testing.T, s *servertest.Server, l *Limiter) {
	t.Helper()
	s.Hold()
	for i := range senders {
		arrive(t.Context(), l, Allow, fmt.Sprint("occupier ", i), 1)
	}
}

// onEvent returns those of the given script calls that are for event.
func onEvent(l *Limiter, calls []servertest.Command, event string) []servertest.Command {
	return slices.DeleteFunc(slices.Clone(calls), func(c servertest.Command) bool { return c.Key != l.Key(event) })
}

// wantError checks that got matches want and names the limiter, and that it is ErrUncertain only if
// want is.
func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || health.IsOutage(want) && errors.Is(got, health.ErrUncertain) != (want == health.ErrUncertain) || //nolint:errorlint // want is a sentinel
		want != nil && !strings.HasPrefix(got.Error(), `slidegate: limiter "test": `) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wantEqual checks that got equals want.
func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Reply{}), cmpopts.IgnoreFields(Reply{}, "Trace")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// mergings lists the ways in which attempts merge.
var mergings = []struct {
	verb   string
	change func(*Config)
}{
	{string(Some), func(*Config) {}},
	{verbEach, func(c *Config) { c.MergeAsSome = false }},
	{verbCountEach, func(c *Config) { c.CountDenied = true }},
}

// forEachMerging runs a test for each way in which attempts merge, and checks that each verb was sent
// with its script.
func forEachMerging(t *testing.T, test func(t *testing.T, verb string, s *servertest.Server, l *Limiter)) {
	t.Helper()
	for _, m := range mergings {
		t.Run(m.verb, func(t *testing.T) {
			servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
				test(t, m.verb, s, limiter(t, s.Client(t), m.change))
				for _, c := range s.Received() {
					wantEqual(t, "script for "+c.Verb, c.Script, scripts[c.Verb].Hash)
				}
			})
		})
	}
}

// A query describes a request by a caller.
type query struct {
	verb  Verb
	event string
	n     int64
}

// batched makes callers wait for the same sender, in the order of queries, and returns the callers
// with their answers.
func batched(t *testing.T, s *servertest.Server, l *Limiter, queries []query) (callers []*caller) {
	t.Helper()
	occupySenders(t, s, l)
	for _, o := range queries {
		callers = append(callers, arrive(t.Context(), l, o.verb, o.event, o.n))
	}
	s.Release()
	for _, c := range callers {
		c.wait()
	}
	return callers
}

// sequential makes the queries one after another, and returns the callers with their answers.
func sequential(t *testing.T, l *Limiter, queries []query) (callers []*caller) {
	t.Helper()
	l = limiter(t, servertest.New().Client(t), func(c *Config) { c.CountDenied = l.CountDenied })
	for _, o := range queries {
		callers = append(callers, ask(t.Context(), l, o.verb, o.event, o.n))
	}
	return callers
}

// integers returns a reply of n ones.
func integers(n int) string { return fmt.Sprintf("*%d", n) + strings.Repeat("\r\n:1", n) }
