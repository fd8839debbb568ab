package window_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// dial returns a Connection that is closed at the end of the test.
func dial(t *testing.T, url string, set ...func(*rueidis.ClientOption)) *window.Connection {
	c := window.Dial(url, set...)
	t.Cleanup(c.Close)
	return c
}

// TestDial checks that the first call after Dial waits for the connection, and that Redis then
// decides.
func TestDial(t *testing.T) {
	var set rueidis.ClientOption
	conn := dial(t, "redis://"+redistest.Addr(t), func(o *rueidis.ClientOption) { o.ClientName, set = "name", *o })
	var seen faulttest.Outages
	l := must(window.New(conn, window.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), Timeout: time.Minute, Observe: seen.Observe}))
	for i := range 2 {
		if d, err := l.Allow(t.Context(), "e"); err != nil || d.Allowed != (i == 0) {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if kinds := seen.Kinds(); len(kinds) > 0 {
		t.Errorf("%q", kinds)
	}
	if !set.AlwaysPipelining || set.ConnWriteTimeout != 2*time.Second || set.Dialer.Timeout != time.Second {
		t.Errorf("%+v", set)
	}
	client := redistest.Client(t)
	if list := must(client.Do(t.Context(), client.B().ClientList().Build()).ToString()); !strings.Contains(list, " name=name ") {
		t.Error(list)
	}
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

// TestStartWhileRedisIsDown checks that each call returns ErrOutage until there is a connection,
// and that Redis decides afterwards.
func TestStartWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill(t)
	conn := dial(t, "redis://"+server.Addr())
	var seen faulttest.Outages
	l := must(window.New(conn, window.Config{Name: "late", Limits: parsed("1/1h"), Timeout: time.Minute, Observe: seen.Observe}))
	ctx := t.Context()
	_, allow := l.Allow(ctx, "e")
	_, peek := l.Peek(ctx, "e")
	_, inspect := l.Inspect(ctx, "e")
	refund := l.Refund(ctx, "e", window.Decision{Counted: 1, At: time.Now()})
	for i, err := range []error{allow, peek, inspect, refund, l.Reset(ctx, "e")} {
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
	seen.AwaitEnd(t)
}

// TestFallbackUntilConnected checks that the Fallback of each kind of limiter decides until their
// shared Connection is up.
func TestFallbackUntilConnected(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill(t)
	conn := dial(t, "redis://"+server.Addr())
	l := must(window.New(conn, window.Config{Name: "late", Limits: parsed("1/1h"), Timeout: time.Minute, Fallback: must(window.NewLocal(window.Config{Name: "x", Limits: parsed("1/1h")}))}))
	level := must(ar1.New(conn, ar1.Config{Name: "late", Limits: parsed("1/1h"), Fallback: must(ar1.NewLocal(ar1.Config{Name: "x", Limits: parsed("1/1h")}))}))
	guard := must(login.New(conn, login.Config{Name: "late", Secret: []byte("sixteen bytes or more"), Fallback: must(login.NewLocal(login.Config{Name: "x"}))}))
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

// TestDialCluster checks that a Connection recognises a cluster and its masters, so that an outage of
// one shard affects only that shard.
func TestDialCluster(t *testing.T) {
	nodes := redistest.ClusterOptions(t).InitAddress
	masters := map[string]bool{}
	l := must(window.New(dial(t, "redis://"+nodes[0]+"?addr="+nodes[1]), window.Config{Name: redistest.Key(t), Limits: parsed("1/1h"), Timeout: time.Minute, Observe: func(_ context.Context, o window.Observation) {
		masters[o.Trace.Master] = true
	}}))
	for _, event := range many(50) {
		if d := must(l.Allow(t.Context(), event)); !d.Allowed {
			t.Errorf("%+v", d)
		}
	}
	if delete(masters, ""); len(masters) != 3 { // the first request finds out who the masters are
		t.Errorf("masters %v", masters)
	}
}

// TestCloseOfOn checks that a client that was passed to On stays open.
func TestCloseOfOn(t *testing.T) {
	client := redistest.NewClient(t, nil)
	window.On(client).Close()
	if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); err != nil {
		t.Error(err)
	}
}

// TestMistakes checks that errors caused by permanent mistakes say what to correct.
func TestMistakes(t *testing.T) {
	t.Parallel()
	one, other, cluster := redistest.Start(t).Addr(), redistest.Start(t).Addr(), redistest.Start(t, "--cluster-enabled", "yes").Addr()
	for url, want := range map[string]string{
		"redis://" + one + "?addr=" + other: "cluster support disabled; name only one server",
		"redis://" + one + "?master_set=m":  "; name the address of a Sentinel, or leave out the name of the master",
		"redis://" + one + "/9999":          "DB index is out of range; choose a database that this Redis has",
		"redis://" + cluster + "/1":         "database", // leave it out, or choose another one where clusters have several
		"rediss://" + one:                   "no answer to the TLS handshake from " + one + " within 1s; if the server does not speak TLS, connect without it",
	} {
		l := must(window.New(dial(t, url), window.Config{Name: "x", Limits: parsed("1/1h"), Timeout: time.Minute}))
		_, err := l.Allow(t.Context(), "e")
		if !errors.Is(err, window.ErrOutage) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) || window.ReasonOf(err) == window.ReasonLua {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestConnectionRefuses checks the errors of New, Err and Wait for a Connection that can never
// connect.
func TestConnectionRefuses(t *testing.T) {
	noAddress := func(o *rueidis.ClientOption) { o.InitAddress = nil }
	for _, of := range []struct {
		conn *window.Connection
		want string
	}{
		{nil, "the Connection is nil; create one with window.Dial, or use NewLocal"},
		{&window.Connection{}, "the Connection is uninitialized; create it with window.Dial"},
		{window.On(nil), "the client of the Connection is nil; pass one from rueidis.NewClient, or use window.Dial"},
		{window.Dial(""), "the Redis URL is empty; write one, as in redis://127.0.0.1:6379"},
		{window.Dial("redis://user:OKAPI/@host"), "the user or the password in the Redis URL cannot be parsed; write them as in " +
			"rediss://user:password@host:6379, with special characters percent-encoded, such as / as %2F"},
		{window.Dial("redis://", noAddress), "no Redis address is set; name one in the URL, as in redis://127.0.0.1:6379 or unix:///run/redis.sock"},
	} {
		_, err := window.New(of.conn, window.Config{Name: "x", Limits: parsed("1/1h")})
		if err == nil || err.Error() != `slidegate: limiter "x" has no Redis: `+of.want {
			t.Error(err)
		}
		if err := of.conn.Err(); err == nil || err.Error() != of.want {
			t.Error(err)
		}
		if err := of.conn.Wait(t.Context()); err == nil || err.Error() != "slidegate: "+of.want {
			t.Error(err)
		}
		of.conn.Close()
	}
}

// TestSecretIsNotInJSON checks that a Config that is encoded as JSON, for example in a log, does
// not contain its Secret.
func TestSecretIsNotInJSON(t *testing.T) {
	secret := []byte("sixteen bytes...")
	for _, cfg := range []any{window.Config{Name: "known", Secret: secret}, ar1.Config{Name: "known", Secret: secret}, login.Config{Name: "known", Secret: secret}} {
		if text := string(must(json.Marshal(cfg))); !strings.Contains(text, "known") || strings.Contains(text, "Secret") || strings.Contains(text, base64.StdEncoding.EncodeToString(secret)) {
			t.Errorf("%T: %s", cfg, text)
		}
	}
}
