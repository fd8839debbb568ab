package ar1_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestBadConfig checks that the error for an invalid Config names the value and the remedy in one
// sentence.
func TestBadConfig(t *testing.T) {
	good := ar1.Config{Name: "x", Limits: limits("5/1h")}
	local := must(ar1.NewLocal(good))
	for says, spoil := range map[string]func(*ar1.Config){
		`limiter name "a b" has the byte " "; use only`:    func(c *ar1.Config) { c.Name = "a b" },
		`limiter "x" has no limits; give at least one`:     func(c *ar1.Config) { c.Limits = nil },
		`limit 1 with a Resolution of 1m0s; leave it at 0`: func(c *ar1.Config) { c.Limits = []ar1.Limit{{Max: 5, Per: time.Hour, Resolution: time.Minute}} },
		`limit 1 with a Max of 0; choose 1 to 10^7`:        func(c *ar1.Config) { c.Limits = []ar1.Limit{{Per: time.Hour}} },
		`a Max of 10000001; choose 1 to 10^7 units`:        func(c *ar1.Config) { c.Limits = []ar1.Limit{{Max: 1e7 + 1, Per: time.Hour}} },
		`limit 2 with a Per of 1.5ms; choose whole`: func(c *ar1.Config) {
			c.Limits = []ar1.Limit{{Max: 1, Per: time.Hour}, {Max: 1, Per: 1500 * time.Microsecond}}
		},
		`two limits with a Per of 1h0m0s, 5/1h and 70/1h; keep the tighter one`: func(c *ar1.Config) { c.Limits = limits("5/1h", "70/1h") },
		`a Secret of 0 bytes; give it at least 16 random ones`:                  func(c *ar1.Config) { c.Secret = []byte{} },
		`is in memory and has a Fallback, which it never needs`:                 func(c *ar1.Config) { c.Fallback = local },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := ar1.NewLocal(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	if _, err := ar1.New(window.On(nil), good); err == nil || !strings.Contains(err.Error(), `limiter "x" has no Redis: the client of the Connection is nil`) {
		t.Error(err)
	}
}

// TestBadAttempts checks that attempts that can never be allowed are errors, and count nothing.
func TestBadAttempts(t *testing.T) {
	both(t, ar1.Config{Limits: limits("500/1m", "900/1h")}, func(b bench) {
		_, empty := b.Allow(b.Context(), "")
		_, free := b.AllowN(b.Context(), "e", 0)
		_, over := b.WaitN(b.Context(), "e", 501)
		b.clock.us.Store(-1)
		_, early := b.Allow(b.Context(), "e")
		b.clock.us.Store(1 << 53)
		_, late := b.Allow(b.Context(), "e")
		b.clock.us.Store(1<<53 - 1)
		for says, err := range map[string]error{
			"name its subject": is(empty, ar1.ErrEmptyEvent), "not 0": is(free, ar1.ErrInvalidCost), "501 units under 500/1m: more": is(over, ar1.ErrExceedsLimit),
			"between 1970 and 2255": early, "2255-06-05": late,
		} {
			if err == nil || !strings.Contains(err.Error(), says) {
				b.Errorf("%v does not say %q", err, says)
			}
		}
		if b.level() != 0 || !b.allow("e", 500).Allowed || b.allow("e", 1).Allowed {
			b.Error("bad attempts counted, or a good one in 2255 did not")
		}
	})
}

// is returns err if it matches target, and nil otherwise.
func is(err, target error) error {
	if errors.Is(err, target) {
		return err
	}
	return nil
}

// hostile holds events that broke other limiters.
var hostile = []string{
	"}", "{", "{}", "}x", "a{b}c", "}{", "\x00", "\xff\xfe", "~hash", "%7D", " ", "é", "\r\n", strings.Repeat("x", 129), strings.Repeat("{", 1000), strings.Repeat("}", 10<<20),
}

// TestAnyEventOnACluster checks that each event has its own key, in the same slot as the key that
// window uses for it, and does not affect any other event.
func TestAnyEventOnACluster(t *testing.T) {
	client := redistest.Cluster(t)
	for _, secret := range [][]byte{nil, []byte("sixteen bytes...")} {
		cfg := ar1.Config{Name: redistest.Key(t), Limits: limits("2/1h"), Secret: secret}
		l := must(ar1.New(window.On(client), cfg))
		w := must(window.New(window.On(client), window.Config{Name: cfg.Name, Limits: cfg.Limits, Secret: secret, Timeout: time.Minute}))
		keys := map[string]bool{}
		for _, event := range hostile {
			first, second, third := must(l.Allow(t.Context(), event)), must(l.Allow(t.Context(), event)), must(l.Allow(t.Context(), event))
			key := must(l.Inspect(t.Context(), event)).Key
			ofWindow := must(w.Inspect(t.Context(), event)).Key
			if !first.Allowed || !second.Allowed || third.Allowed || keys[key] || !strings.HasSuffix(key, "}:a") || ofWindow != strings.TrimSuffix(key, "a")+"w" {
				t.Errorf("%.20q, key %s: %+v %+v %+v", event, key, first, second, third)
			}
			keys[key] = true
			if err := errors.Join(l.Refund(t.Context(), event, second), l.Reset(t.Context(), event)); err != nil {
				t.Errorf("%.20q: %v", event, err)
			}
		}
	}
}

// TestOneKeyExpires checks on the server's clock that an event is one key, which expires when its
// last level is below 1/4.
func TestOneKeyExpires(t *testing.T) {
	client, name := redistest.Client(t), redistest.Key(t)
	l := must(ar1.New(window.On(client), ar1.Config{Name: name, Limits: limits("5/20ms", "9/100ms"), Timeout: time.Minute}))
	before := time.Now()
	d := must(l.Allow(t.Context(), "e"))
	key := must(l.Inspect(t.Context(), "e")).Key
	ends := redistest.Expires(t, client, key)
	if want := d.At.Add(d.Usage[1].ResetAfter).UnixMilli(); d.Usage[1].ResetAfter != 139*time.Millisecond || ends < want || ends > want+1 || d.At.Before(before.Add(-time.Second)) {
		t.Errorf("key ends at %d, the level at %d: %+v", ends, want, d)
	}
	for time.Now().Before(d.At.Add(time.Second)) && must(client.Do(t.Context(), client.B().Exists().Key(key).Build()).AsInt64()) > 0 {
		continue // until the server drops it
	}
	if s := must(l.Inspect(t.Context(), "e")); s.Limits[1].Level != 0 || s.Limits[1].Rate != 0 {
		t.Errorf("a level remains: %+v", s)
	}
	if keys := must(client.Do(t.Context(), client.B().Exists().Key(key).Build()).AsInt64()); keys != 0 {
		t.Error("the key is still there after a second")
	}
}

// TestFreeLook checks that a peek, an inspection and a denial change nothing, and that either all
// limits count an attempt or none.
func TestFreeLook(t *testing.T) {
	client, c, name := redistest.Client(t), newClock(), redistest.Key(t)
	b := bench{t, must(ar1.New(window.On(client), ar1.Config{Name: name, Limits: limits("1/5s", "5/1h"), Now: c.now, Timeout: time.Minute})), c}
	b.allow("e", 1)
	key := must(b.Inspect(t.Context(), "e")).Key
	if !strings.HasPrefix(key, name+":{") {
		t.Errorf("%s is not a key of %s", key, name)
	}
	state := func() string { return redistest.Stored(t, client, key) }
	before := state()
	c.pass(time.Second)
	peeked := b.peek("e", 1)
	if again := b.peek("e", 1); peeked.Allowed || !cmp.Equal(again, peeked) || !b.peek("new", 1).Allowed {
		t.Errorf("%+v, and then %+v", peeked, again)
	}
	b.level()
	if d := b.allow("e", 1); d.Allowed || state() != before || d.Tightest().Limit.Max != 1 {
		t.Errorf("%s became %s: %+v", before, state(), d)
	}
}

// TestOutage checks that an attempt whose reply is lost returns ErrUncertain and is counted once.
// If the server refuses, the error must be ErrOutage, or the Fallback must decide.
func TestOutage(t *testing.T) {
	server, faults := redistest.Start(t), &redistest.Faults{}
	var seen []ar1.Observation
	cfg := ar1.Config{Name: "outage", Limits: limits("5/1h"), Observe: func(_ context.Context, o ar1.Observation) { seen = append(seen, o) }}
	client := server.NewClient(t, faults.Break)
	l := must(ar1.New(window.On(client), cfg))
	must(l.Allow(t.Context(), "e"))
	faults.LoseReply("EVALSHA")
	if _, err := l.Allow(t.Context(), "e"); !errors.Is(err, ar1.ErrUncertain) {
		t.Error(err)
	}
	if used := must(l.Peek(t.Context(), "e")).Usage[0].Used; used != 3 { // an allowed peek includes its own units
		t.Errorf("%d used, and one of them uncertain", used)
	}
	must("", client.Do(t.Context(), client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory", "1").Build()).Error())
	if _, err := l.Allow(t.Context(), "e"); !errors.Is(err, ar1.ErrOutage) {
		t.Error(err)
	}
	var kinds []window.Kind
	for _, o := range seen {
		kinds = append(kinds, o.Kind)
	}
	if diff := cmp.Diff([]window.Kind{window.KindAllowed, window.KindUncertain, window.KindPeeked, window.KindOutage}, kinds); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	fallsBack(t, client, cfg)
}

func fallsBack(t *testing.T, client rueidis.Client, cfg ar1.Config) {
	t.Helper()
	local := must(ar1.NewLocal(ar1.Config{Name: "local", Limits: limits("1/1h")}))
	cfg.Fallback = local
	var plans []string
	cfg.Observe = func(_ context.Context, o ar1.Observation) { plans = append(plans, o.Plan) }
	l := must(ar1.New(window.On(client), cfg))
	d := must(l.Allow(t.Context(), "e"))
	if !d.Degraded || window.ReasonOf(d.Cause) != window.ReasonOOM || !d.Allowed || must(l.WithPlan("pro").Allow(t.Context(), "e")).Allowed {
		t.Errorf("the Fallback: %+v", d)
	}
	if diff := cmp.Diff([]string{"", "pro"}, plans); diff != "" {
		t.Errorf("plans (-want +got)\n%s", diff)
	}
	if err := l.Refund(t.Context(), "e", d); err != nil || must(local.Inspect(t.Context(), "e")).Limits[0].Level != 0 {
		t.Errorf("refunded in the Fallback: %v", err)
	}
	if _, err := ar1.New(window.On(client), ar1.Config{Name: "x", Limits: limits("1/1h"), Fallback: l}); err == nil || !strings.Contains(err.Error(), "leave out one of them") {
		t.Error(err)
	}
	if _, err := ar1.New(window.On(client), ar1.Config{Name: "x", Limits: limits("1/1h"), Fallback: &ar1.Limiter{}}); err == nil || !strings.Contains(err.Error(), "uninitialized Fallback; create it with New or NewLocal") {
		t.Error(err)
	}
}

// TestWait waits on synctest's fake clock. After a burst of 2, the first wait must be 0.36 s, and
// each later one half a second.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(ar1.NewLocal(ar1.Config{Name: "wait", Limits: limits("2/1s")}))
		for i, want := range []time.Duration{0, 0, 261 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond} {
			begin := time.Now()
			d, err := l.Wait(t.Context(), "e")
			if took := time.Since(begin); err != nil || !d.Allowed || took > want+want/20 || took < want*9/10 {
				t.Fatalf("wait %d took %v, not %v: %+v %v", i, took, want, d, err)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if d, err := l.Wait(short, "e"); !errors.Is(err, context.DeadlineExceeded) || d.Allowed || d.RetryAfter == 0 {
			t.Errorf("%+v %v", d, err)
		}
	})
}

// TestSecretIsNotInJSON checks that a Config that is encoded as JSON, for example in a log, does
// not contain its Secret.
func TestSecretIsNotInJSON(t *testing.T) {
	cfg := ar1.Config{Name: "known", Limits: limits("5/1h"), Secret: []byte("sixteen bytes...")}
	text := string(must(json.Marshal(cfg)))
	if !strings.Contains(text, cfg.Name) || strings.Contains(text, "Secret") || strings.Contains(text, base64.StdEncoding.EncodeToString(cfg.Secret)) {
		t.Error(text)
	}
}
