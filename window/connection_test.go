package window_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/faulttest"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// dialTo returns a function that dials a server.
func dialTo(s *redistest.Server) func(context.Context) (rueidis.Client, error) {
	return func(context.Context) (rueidis.Client, error) {
		return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true, AlwaysPipelining: true})
	}
}

// connect returns a Connection that is closed at the end of the test.
func connect(t *testing.T, dial func(context.Context) (rueidis.Client, error)) *window.Connection {
	c := window.Connect(dial)
	t.Cleanup(c.Close)
	return c
}

// awaitConnection waits until there is a client.
func awaitConnection(t *testing.T, c *window.Connection) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestStartWhileRedisIsDown checks that before there is a connection each call returns ErrOutage at
// once, and that Redis decides afterwards.
func TestStartWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill(t)
	conn := connect(t, dialTo(server))
	var seen faulttest.Outages
	l := must(window.NewOn(conn, window.Config{Name: "late", Limits: parsed("1/1h"), Timeout: time.Minute, Observe: seen.Observe}))
	ctx := t.Context()
	_, allow := l.Allow(ctx, "e")
	_, peek := l.Peek(ctx, "e")
	_, inspect := l.Inspect(ctx, "e")
	each := l.AllowEach(ctx, []string{"e", "f"})
	refund := l.Refund(ctx, "e", window.Decision{Counted: 1, At: time.Now()})
	for i, err := range []error{allow, peek, inspect, each[0].Err, each[1].Err, refund, l.Reset(ctx, "e")} {
		if !errors.Is(err, window.ErrOutage) || errors.Is(err, window.ErrUncertain) || !strings.Contains(err.Error(), "no connection yet") {
			t.Errorf("%d: %v", i, err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := conn.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	server.Restart(t)
	awaitConnection(t, conn)
	for range 100 { // a select alone would choose at random
		if err := conn.Wait(short); err != nil {
			t.Fatal(err)
		}
	}
	faulttest.AwaitAnswer(t, l, "e")
	if d := must(l.Allow(ctx, "e")); d.Allowed || conn.Err() != nil {
		t.Errorf("%+v, %v", d, conn.Err())
	}
	if kinds := seen.Kinds(); !slices.Equal(kinds, []window.Kind{window.KindOutageBegan, window.KindOutageEnded}) {
		t.Errorf("%q", kinds)
	}
}

// TestFallbackUntilConnected checks that the Fallback of each kind of limiter decides until their
// shared Connection is made.
func TestFallbackUntilConnected(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill(t)
	conn := connect(t, dialTo(server))
	l := must(window.NewOn(conn, window.Config{Name: "late", Limits: parsed("1/1h"), Fallback: must(window.NewLocal(window.Config{Name: "x", Limits: parsed("1/1h")}))}))
	level := must(ar1.NewOn(conn, ar1.Config{Name: "late", Limits: parsed("1/1h"), Fallback: must(ar1.NewLocal(ar1.Config{Name: "x", Limits: parsed("1/1h")}))}))
	guard := must(login.NewOn(conn, login.Config{Name: "late", Secret: []byte("sixteen bytes or more"), Fallback: must(login.NewLocal(login.Config{Name: "x"}))}))
	for range 2 {
		a, b := must(l.Allow(t.Context(), "e")), must(level.Allow(t.Context(), "e"))
		c := must(guard.Begin(t.Context(), "account", netip.MustParseAddr("198.51.100.7")))
		if !a.Degraded || !b.Degraded || !c.Allowed {
			t.Errorf("%+v, %+v, %+v", a, b, c)
		}
	}
	server.Restart(t)
	awaitConnection(t, conn)
	faulttest.AwaitAnswer(t, l, "e")
	if d := must(l.Allow(t.Context(), "e")); d.Allowed || d.Degraded {
		t.Errorf("%+v", d)
	}
}

// TestLateOnCluster checks that a Connection recognises a cluster. An outage of one shard then
// stays an outage of that shard.
func TestLateOnCluster(t *testing.T) {
	client := redistest.Cluster(t)
	conn := window.Connect(func(context.Context) (rueidis.Client, error) { return client, nil })
	var ranges []int
	l := must(window.NewOn(conn, window.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), Observe: func(_ context.Context, o window.Observation) {
		ranges = append(ranges, o.SlotRange)
	}}))
	awaitConnection(t, conn)
	for _, event := range many(50) {
		if d := must(l.Allow(t.Context(), event)); !d.Allowed {
			t.Errorf("%+v", d)
		}
	}
	if slices.Max(ranges) < 32 {
		t.Errorf("slot ranges %v", ranges)
	}
}

// TestConnectionEnds checks that nothing dials after Close, and that a client that comes too late
// is closed.
func TestConnectionEnds(t *testing.T) {
	dialing, client := make(chan struct{}), make(chan rueidis.Client)
	conn := window.Connect(func(context.Context) (rueidis.Client, error) {
		close(dialing) // panics the second time
		return <-client, nil
	})
	<-dialing
	conn.Close()
	conn.Close()
	late := must(dialTo(redistest.Start(t))(t.Context()))
	client <- late
	for late.Do(t.Context(), late.B().Ping().Build()).Error() == nil { // until it is closed
	}
	l := must(window.NewOn(conn, window.Config{Name: "x", Limits: parsed("1/1h")}))
	if _, err := l.Allow(t.Context(), "e"); !errors.Is(err, window.ErrOutage) || !strings.Contains(err.Error(), "the Connection is closed") {
		t.Error(err)
	}
}

// TestConnectionRefuses checks the errors for a Connection that can never connect.
func TestConnectionRefuses(t *testing.T) {
	cfg := window.Config{Name: "x", Limits: parsed("1/1h")}
	_, none := window.NewOn(nil, cfg)
	_, zero := window.NewOn(&window.Connection{}, cfg)
	_, noDial := window.NewOn(window.Connect(nil), cfg)
	for i, err := range []error{none, zero, noDial} {
		if want := []string{"has no client", "is zero, or has no dial", "is zero, or has no dial"}[i]; err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
	conn := connect(t, func(context.Context) (rueidis.Client, error) { return nil, nil }) //nolint:nilnil // what it is about
	for conn.Err() == nil {                                                               // until dial has returned
	}
	if err := conn.Err(); !strings.Contains(err.Error(), "neither a client nor an error") {
		t.Error(err)
	}
}
