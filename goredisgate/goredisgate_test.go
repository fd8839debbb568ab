package goredisgate_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/goredisgate"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// perHour holds the limits that these tests use.
var perHour = []window.Limit{window.PerHour(3)}

// servers returns the client options for each kind of server and protocol version.
func servers(tb testing.TB) map[string]*redis.UniversalOptions {
	tb.Helper()
	single, cluster := redistest.Options(tb, nil), redistest.ClusterOptions(tb)
	all := map[string]*redis.UniversalOptions{}
	for _, protocol := range []int{2, 3} {
		all[fmt.Sprint("server, RESP", protocol)] = &redis.UniversalOptions{Addrs: single.InitAddress, Protocol: protocol}
		all[fmt.Sprint("cluster, RESP", protocol)] = &redis.UniversalOptions{Addrs: cluster.InitAddress, Dialer: faulttest.Dialer(cluster), Protocol: protocol}
		all[fmt.Sprint("replicas, RESP", protocol)] = &redis.UniversalOptions{Addrs: cluster.InitAddress, Dialer: faulttest.Dialer(cluster), Protocol: protocol, RouteRandomly: true}
	}
	return all
}

// playOverrides changes the limits of an event while it is in use.
func playOverrides(t *testing.T, conn *window.Connection) {
	t.Helper()
	l := must(window.New(conn, window.Config{Name: redistest.Key(t), Limits: perHour, Timeout: time.Minute, Overrides: true}))
	for _, o := range []window.Override{
		{Mode: window.OverrideBlock, Why: "it floods us"}, {Mode: window.OverrideUnlimited, Why: "a test"}, {Mode: window.OverrideLimits, Limits: []window.Limit{window.PerMinute(1)}, Why: "calm", By: "ann"},
	} {
		if err := l.Override(t.Context(), "e", o, time.Hour); err != nil {
			t.Fatal(err)
		}
		for pace := time.NewTicker(time.Millisecond); must(l.Peek(t.Context(), "e")).Override != o.Mode; {
			<-pace.C
		}
		if d := must(l.AllowUpTo(t.Context(), "e", 9)); d.Granted != map[window.OverrideMode]int64{window.OverrideUnlimited: 9, window.OverrideLimits: 1}[o.Mode] {
			t.Errorf("%s: %+v", o.Mode, d)
		}
	}
	if all := must(l.Overrides(t.Context())); len(all) != 1 || all[0].By != "ann" || all[0].Event != "e" {
		t.Errorf("%+v", all)
	}
	if ended := must(l.EndOverride(t.Context(), "e")); !ended {
		t.Error("there was no override to end")
	}
}

// TestEveryKind runs histories with every kind of limiter: on one server and on a cluster, with
// both protocol versions, as single calls and in pipelines, and on servers that do not know the
// scripts.
func TestEveryKind(t *testing.T) {
	for name, options := range servers(t) {
		t.Run(name, func(t *testing.T) {
			client := redis.NewUniversalClient(options)
			defer client.Close()
			conn := connect(t, client)
			if err := client.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			var remembered atomic.Bool
			w := must(window.New(conn, window.Config{
				Name: redistest.Key(t), Limits: perHour, Timeout: time.Minute, DenialCache: 10,
				Observe: func(_ context.Context, o window.Observation) {
					if o.Trace.Remembered {
						remembered.Store(true)
					}
				},
			}))
			a := must(ar1.New(conn, ar1.Config{Name: redistest.Key(t), Limits: perHour, Timeout: time.Minute}))
			var events []string
			for i := range 200 {
				events = append(events, fmt.Sprint("event ", i%50))
			}
			var allowed atomic.Int64
			redistest.AtOnce(2*len(events), func(i int) {
				d := must([]allower{w, a}[i%2].Allow(t.Context(), events[i/2]))
				allowed.Add(d.Granted)
			})
			if n := allowed.Load(); n != 2*150 {
				t.Errorf("%d attempts are allowed", n)
			}
			for !remembered.Load() {
				if d, err := w.Allow(t.Context(), events[0]); err != nil || d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			playOverrides(t, conn)
			p := must(pace.New(conn, pace.Config{Name: redistest.Key(t), Limits: perHour, MaxAhead: 2 * time.Hour, Timeout: time.Minute}))
			for turn := range 7 {
				if r := must(p.Reserve(t.Context(), "e")); r.Delay > time.Duration(turn/3)*time.Hour || r.Delay < time.Duration(turn/3)*time.Hour-time.Minute {
					t.Errorf("turn %d: %+v", turn, r)
				}
			}
			places := must(inflight.New(conn, inflight.Config{Name: redistest.Key(t), Max: 1, TTL: time.Hour, Holder: "a pod", Timeout: time.Minute}))
			lease := must(places.Acquire(t.Context(), "e"))
			if another, d, err := places.TryAcquire(t.Context(), "e"); another != nil || err != nil || d.Used != 1 {
				t.Errorf("%v, %+v, %v", another, d, err)
			}
			if s := must(places.Inspect(t.Context(), "e")); len(s.Leases) != 1 || s.Leases[0].Holder != "a pod" || s.Token != lease.Token() {
				t.Errorf("%+v", s)
			}
			if err := places.Close(t.Context()); err != nil || must(places.Inspect(t.Context(), "e")).Used != 0 {
				t.Errorf("a place is held after Close: %v", err)
			}
			guard := must(login.New(conn, login.Config{Name: redistest.Key(t), Secret: []byte("sixteen bytes or more"), Timeout: time.Minute}))
			if _, err := guard.Inspect(t.Context(), "alice", netip.MustParseAddr("198.51.100.7")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestClientIsLeftAsItWas checks that the client still retries its own commands, and that closing
// the Connection leaves the client open.
func TestClientIsLeftAsItWas(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Addr(t), WriteTimeout: time.Minute})
	defer client.Close()
	before := *client.Options()
	conn := connect(t, client)
	conn.Close()
	after := client.Options()
	if after.MaxRetries != before.MaxRetries || after.MaxRetries == 0 || after.ReadTimeout != before.ReadTimeout || after.WriteTimeout != before.WriteTimeout {
		t.Errorf("the options are now %+v", after)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// counter is a hook that counts script calls and their keys.
type counter struct {
	keys    atomic.Int64 // the event keys
	largest atomic.Int64 // the most script calls in a pipeline
}

func (*counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n := c.count(cmds...)
		for most := c.largest.Load(); n > most && !c.largest.CompareAndSwap(most, n); most = c.largest.Load() {
		}
		return next(ctx, cmds)
	}
}

// count adds the event keys in cmds to c.keys, and returns the number of script calls.
func (c *counter) count(cmds ...redis.Cmder) (calls int64) {
	for _, cmd := range cmds {
		if strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") {
			calls++
			for _, arg := range cmd.Args() {
				if key, ok := arg.(string); ok && strings.HasSuffix(key, "}:w") {
					c.keys.Add(1)
				}
			}
		}
	}
	return calls
}

// TestHooks checks that the client's hooks see the script calls for all events, both as single
// commands and in pipelines.
func TestHooks(t *testing.T) {
	for name, options := range servers(t) {
		t.Run(name, func(t *testing.T) {
			client, seen := redis.NewUniversalClient(options), &counter{}
			defer client.Close()
			if cluster, ok := client.(*redis.ClusterClient); ok {
				cluster.OnNewNode(func(node *redis.Client) { node.AddHook(seen) })
			}
			conn := connect(t, client)
			if server, ok := client.(*redis.Client); ok {
				server.AddHook(seen)
			}
			l := must(window.New(conn, window.Config{Name: redistest.Key(t), Limits: perHour, Timeout: time.Minute}))
			events := make([]string, 100) // more than fit into one script call
			for i := range events {
				events[i] = fmt.Sprint("event ", i)
			}
			faulttest.Asker(t, l)(events) // loads the script
			seen.keys.Store(0)
			seen.largest.Store(0)
			sent := int64(10)
			for range sent {
				must(l.Allow(t.Context(), "a"))
			}
			for i := 0; i < 1000 && seen.largest.Load() < 2; i++ { // until script calls share a pipeline
				faulttest.Asker(t, l)(events)
				sent += int64(len(events))
			}
			if keys, largest := seen.keys.Load(), seen.largest.Load(); keys != sent || largest < 2 {
				t.Errorf("of %d events, hooks have seen %d, and at most %d script calls in a pipeline", sent, keys, largest)
			}
		})
	}
}

// An allower is a limiter of any kind that allows units.
type allower interface {
	Allow(ctx context.Context, event string) (window.Decision, error)
}

// wrapper is a hook that adds text to errors.
type wrapper struct{}

func (wrapper) DialHook(next redis.DialHook) redis.DialHook { return next }

func (wrapper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err != nil {
			return fmt.Errorf("redis of accounts: %w", err)
		}
		return nil
	}
}

func (wrapper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestHookWrapsErrors checks that a limiter still recognizes NOSCRIPT if a hook wraps it, and loads
// the script.
func TestHookWrapsErrors(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer client.Close()
	client.AddHook(wrapper{})
	l := must(window.New(connect(t, client), window.Config{Name: redistest.Key(t), Limits: perHour, Timeout: time.Minute}))
	if d, err := l.Allow(t.Context(), "e"); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestBrokenTogether checks that if several connections break at the same time, only one request
// fails, whether the connections were opened for single commands or for pipelines.
func TestBrokenTogether(t *testing.T) {
	const each = 6
	server, faults := redistest.Start(t), &redistest.Faults{}
	client := client(t, server.Options(faults.Break))
	l := must(window.New(connect(t, client), window.Config{Name: redistest.Key(t), Limits: perHour, Timeout: time.Minute}))
	must(l.Allow(t.Context(), "e"))
	var blocked sync.WaitGroup
	for range each {
		blocked.Go(func() { client.BLPop(t.Context(), 0, "list") })
		blocked.Go(func() {
			_, _ = client.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.BLPop(t.Context(), 0, "list").Err() })
		})
	}
	for strings.Count(must(server.Do(t.Context(), "CLIENT", "LIST").ToString()), "cmd=blpop") < 2*each {
	}
	must(server.Do(t.Context(), append([]string{"RPUSH", "list"}, make([]string, 2*each)...)...).ToInt64())
	blocked.Wait()
	faults.Cut()
	if _, err := l.Allow(t.Context(), "e"); !errors.Is(err, window.ErrUncertain) {
		t.Fatalf("this test proves nothing: %v on a broken connection", err)
	}
	for range 100 {
		faulttest.Asker(t, l)([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"})
	}
}

// TestRefusals checks the errors for clients that limiters cannot use.
func TestRefusals(t *testing.T) {
	const isNil = "the client passed to goredisgate is nil; pass the one from redis.NewClient or redis.NewClusterClient"
	for _, test := range []struct {
		client redis.UniversalClient
		want   string
	}{
		{nil, isNil},
		{(*redis.Client)(nil), isNil},
		{(*redis.ClusterClient)(nil), isNil},
		{redis.NewRing(&redis.RingOptions{}), "goredisgate cannot use a *redis.Ring, which moves keys to other"},
		{struct{ redis.UniversalClient }{}, "goredisgate needs a *redis.Client or a *redis.ClusterClient, not struct { redis.UniversalClient }; pass"},
	} {
		_, err := window.New(goredisgate.On(test.client), window.Config{Name: "x", Limits: perHour})
		if err == nil || !strings.HasPrefix(err.Error(), `slidegate: limiter "x" has no Redis: `+test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
}

// TestACL checks that the ACL user described in docs/keys.md has all permissions that a limiter
// needs.
func TestACL(t *testing.T) {
	server := redistest.Start(t)
	rule := "limiter on >password ~login:* +evalsha +eval +get +set +del +time +hello +ping +asking +cluster|slots"
	if err := server.Do(t.Context(), append([]string{"ACL", "SETUSER"}, strings.Fields(rule)...)...).Error(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "limiter", Password: "password", DisableIdentity: true})
	defer client.Close()
	l := must(window.New(connect(t, client), window.Config{Name: "login", Limits: perHour, Timeout: time.Minute}))
	d, err1 := l.Allow(t.Context(), "e")
	err2 := l.Refund(t.Context(), "e", d)
	err3 := l.Reset(t.Context(), "e")
	if err := errors.Join(err1, err2, err3); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	if denied := must(server.Do(t.Context(), "ACL", "LOG").ToArray()); len(denied) > 0 {
		t.Errorf("denied: %v", denied)
	}
}
