package window_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// night is a limiter with overrides, whose clock the test sets.
type night struct {
	*testing.T
	*window.Limiter
	clock *clock
}

// newNight returns a limiter of 2/1h on a connection, which often reads its overrides.
func newNight(t *testing.T, conn *window.Connection, change func(*window.Config)) night {
	t.Helper()
	c := &clock{}
	c.set(noon)
	cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h"), Now: c.now, Timeout: time.Minute, Overrides: true}
	if change != nil {
		change(&cfg)
	}
	l := must(window.New(conn, cfg))
	l.ReadOverridesEvery(50 * time.Millisecond)
	return night{t, l, c}
}

// override gives the event an override for an hour, and waits until this limiter applies it.
func (n night) override(event string, o window.Override) {
	n.Helper()
	if o.Why = "on call"; o.Mode == "" {
		o.Mode = window.OverrideLimits
	}
	check(n.T, n.Override(n.Context(), event, o, time.Hour))
	n.awaits(event, o.Mode, o.Limits...)
}

// end ends the override of the event, and waits until this limiter no longer applies it.
func (n night) end(event string) {
	n.Helper()
	if ended, err := n.EndOverride(n.Context(), event); !ended || err != nil {
		n.Fatal(ended, err)
	}
	n.awaits(event, "")
}

// awaits waits until peeks are answered according to an override with the given mode and limits.
func (n night) awaits(event string, mode window.OverrideMode, limits ...window.Limit) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), time.Minute)
	defer cancel()
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for ; ; <-pace.C {
		d := must(n.Peek(ctx, event))
		if d.Override == mode && (limits == nil || slices.EqualFunc(d.Usage, limits, func(u window.Usage, l window.Limit) bool { return u.Limit == l })) {
			return
		}
	}
}

// attempts makes the given number of attempts of one unit, and returns the answers.
func (n night) attempts(event string, many int) string {
	n.Helper()
	var got []string
	for range many {
		d := must(n.Allow(n.Context(), event))
		got = append(got, fmt.Sprintf("%v %d of %v %s", d.Allowed, d.Remaining, d.Usage[0].Limit, d.RetryAfter))
	}
	return strings.Join(got, "; ")
}

// TestOverride changes the limits of an event while it is in use, on one server and on a cluster.
func TestOverride(t *testing.T) {
	for name, client := range map[string]rueidis.Client{"server": redistest.Client(t), "cluster": redistest.Cluster(t)} {
		t.Run(name, func(t *testing.T) {
			n := newNight(t, window.On(client), nil)
			is := func(want string, many int) {
				t.Helper()
				if got := n.attempts("e", many); got != want {
					t.Errorf("%s, not %s", got, want)
				}
			}
			is("true 1 of 2/1h 0s; true 0 of 2/1h 0s; false 0 of 2/1h 1h0m0s", 3)
			n.override("e", window.Override{Limits: parsed("4/1h")})
			is("true 1 of 4/1h 0s; true 0 of 4/1h 0s; false 0 of 4/1h 1h0m0s", 3)
			n.override("e", window.Override{Limits: parsed("1/1m")}) // it replaces all limits
			is("true 0 of 1/1m 0s; false 0 of 1/1m 1m0s", 2)
			n.override("e", window.Override{Mode: window.OverrideUnlimited})
			is("true 2 of 2/1h 0s; true 2 of 2/1h 0s; true 2 of 2/1h 0s", 3)
			n.override("e", window.Override{Mode: window.OverrideBlock})
			is("false 0 of 2/1h 1h0m0s", 1)
			n.clock.pass(59*time.Minute + 59999*time.Millisecond)
			is("false 0 of 2/1h 1ms", 1)
			n.clock.pass(time.Millisecond) // the override ends by itself, and what was counted is forgotten
			is("true 1 of 2/1h 0s", 1)
			n.override("e", window.Override{Mode: window.OverrideBlock})
			n.end("e")
			is("true 0 of 2/1h 0s; false 0 of 2/1h 1h0m0s", 2)
		})
	}
}

// TestOverrideAtTheSameTime checks that a limiter whose clock stands still notices that an override
// was ended and another one set.
func TestOverrideAtTheSameTime(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	n := newNight(t, window.On(client), nil)
	other := newNight(t, window.On(client), func(cfg *window.Config) { cfg.Name = n.Name() })
	n.override("e", window.Override{Limits: parsed("4/1h")})
	if ended := must(other.EndOverride(t.Context(), "e")); !ended {
		t.Fatal("there was no override")
	}
	check(t, other.Override(t.Context(), "e", window.Override{Mode: window.OverrideBlock, Why: "why"}, time.Hour))
	n.awaits("e", window.OverrideBlock)
}

// TestOverrideVerbs checks the answers of each verb under a block and under OverrideUnlimited.
// Nothing is counted, except by a Charge under a block.
func TestOverrideVerbs(t *testing.T) {
	n := newNight(t, window.On(redistest.Client(t)), nil)
	n.override("all", window.Override{Mode: window.OverrideUnlimited})
	n.override("none", window.Override{Mode: window.OverrideBlock})
	for _, verb := range []string{"allow", "peek", "upTo", "charge"} {
		d := must(decide(t.Context(), n.Limiter, verb, "all", 7)) // more than any Max
		want := window.Decision{
			Allowed: true, Granted: 7, Remaining: 2, At: noon, Override: window.OverrideUnlimited,
			Usage: []window.Usage{{Limit: window.PerHour(2), Remaining: 2}},
		}
		if diff := cmp.Diff(want, d); diff != "" {
			t.Errorf("%s of unlimited: %s", verb, diff)
		}
		if verb == "charge" {
			continue
		}
		d = must(decide(t.Context(), n.Limiter, verb, "none", 7))
		want = window.Decision{
			RetryAfter: time.Hour, At: noon, Override: window.OverrideBlock,
			Usage: []window.Usage{{Limit: window.PerHour(2), RetryAfter: time.Hour, ResetAfter: time.Hour}},
		}
		if diff := cmp.Diff(want, d); diff != "" {
			t.Errorf("%s of blocked: %s", verb, diff)
		}
	}
	d := must(n.Allow(t.Context(), "all"))
	if settled := must(n.Settle(t.Context(), "all", d, 100)); !cmp.Equal(settled, d) {
		t.Errorf("settled: %+v", settled)
	}
	check(t, n.Refund(t.Context(), "all", d))
	if used := usedOf(t, n.Limiter, "all"); used != 0 {
		t.Errorf("unlimited counts %d units", used)
	}
	if d := must(n.Charge(t.Context(), "none", 1)); d.Counted != 1 || d.Override != "" || usedOf(t, n.Limiter, "none") != 1 {
		t.Errorf("a charge under a block: %+v", d)
	}
	plain := must(window.New(window.On(redistest.Client(t)), window.Config{Name: n.Name(), Limits: parsed("2/1h"), Now: n.clock.now, Timeout: time.Minute}))
	if d := must(plain.Allow(t.Context(), "none")); !d.Allowed || d.Override != "" {
		t.Errorf("without Config.Overrides: %+v", d)
	}
	for _, bad := range []struct {
		event string
		n     int64
		want  error
	}{{"", 1, window.ErrEmptyEvent}, {"all", 0, window.ErrInvalidCost}, {"none", -1, window.ErrInvalidCost}} {
		if _, err := n.AllowN(t.Context(), bad.event, bad.n); !errors.Is(err, bad.want) {
			t.Errorf("%q, %d units: %v", bad.event, bad.n, err)
		}
	}
}

// TestOverrideTooLow checks that a request for more units than the Max of an override is denied
// until the override ends, if the limiter's own limits can allow it, and that nothing is counted.
// Otherwise the error is ErrExceedsLimit.
func TestOverrideTooLow(t *testing.T) {
	n := newNight(t, window.On(redistest.Client(t)), func(cfg *window.Config) { cfg.Limits = parsed("9/1h") })
	n.override("e", window.Override{Limits: parsed("20/1d", "5/1h")})
	want := window.Decision{
		RetryAfter: time.Hour, At: noon, Override: window.OverrideLimits,
		Usage: []window.Usage{
			{Limit: window.PerDay(20), Remaining: 20},
			{Limit: window.PerHour(5), RetryAfter: time.Hour, ResetAfter: time.Hour},
		},
	}
	for _, verb := range []string{"allow", "peek"} {
		if diff := cmp.Diff(want, must(decide(t.Context(), n.Limiter, verb, "e", 6))); diff != "" {
			t.Errorf("%s: %s", verb, diff)
		}
	}
	three := window.Check{Limiter: n.Limiter, Event: "e", N: 3}
	if d := must(window.AllowAll(t.Context(), three, three)); d.Allowed || d.RetryAfter != time.Hour {
		t.Errorf("checks of one event: %+v", d)
	}
	if used := usedOf(t, n.Limiter, "e"); used != 0 {
		t.Errorf("%d units are counted", used)
	}
	if _, err := n.AllowN(t.Context(), "e", 10); !errors.Is(err, window.ErrExceedsLimit) {
		t.Error(err)
	}
	if d := must(n.AllowUpTo(t.Context(), "e", 6)); d.Granted != 5 {
		t.Errorf("%+v", d)
	}
}

// TestOverrideRetryAfter checks that RetryAfter is at most the time until the override ends, also
// after AllowAll, and that the limiter's own limits decide after that.
func TestOverrideRetryAfter(t *testing.T) {
	n := newNight(t, window.On(redistest.Client(t)), nil)
	n.override("e", window.Override{Limits: parsed("1/1d")})
	n.clock.pass(time.Minute)
	must(n.Allow(t.Context(), "e"))
	d := must(n.Allow(t.Context(), "e"))
	if d.Allowed || d.RetryAfter != 59*time.Minute || d.Usage[0].RetryAfter != 24*time.Hour {
		t.Errorf("%+v", d)
	}
	if all := must(window.AllowAll(t.Context(), window.Check{Limiter: n.Limiter, Event: "e"})); all.RetryAfter != 59*time.Minute {
		t.Errorf("%+v", all)
	}
	n.clock.pass(d.RetryAfter)
	if d = must(n.Allow(t.Context(), "e")); !d.Allowed || d.Override != "" {
		t.Errorf("%+v", d)
	}
}

// TestOverrideRefund checks that a decision under the limits of an override is refunded under the
// same limits, even after the override has ended, and that Settle charges missing units.
func TestOverrideRefund(t *testing.T) {
	n := newNight(t, window.On(redistest.Client(t)), nil)
	n.override("e", window.Override{Limits: parsed("9/1m")})
	kept, back := must(n.AllowN(t.Context(), "e", 2)), must(n.AllowN(t.Context(), "e", 3))
	if kept.Override != window.OverrideLimits || must(n.Settle(t.Context(), "e", kept, 4)).Counted != 4 {
		t.Errorf("%+v", kept)
	}
	n.end("e")
	check(t, n.Refund(t.Context(), "e", back))
	others := must(n.Inspect(t.Context(), "e")).Others
	if len(others) != 1 || others[0].Used != 4 {
		t.Errorf("counted: %+v", others)
	}
}

// TestOverrideAll checks AllowAll: a block denies before anything is asked, an unlimited event is
// not asked, and errors name the checks of the call.
func TestOverrideAll(t *testing.T) {
	n := newNight(t, window.On(redistest.Client(t)), func(cfg *window.Config) { cfg.Now = nil })
	n.override("more", window.Override{Limits: parsed("3/1h")})
	n.override("all", window.Override{Mode: window.OverrideUnlimited})
	n.override("none", window.Override{Mode: window.OverrideBlock})
	ask := func(events ...string) (window.JointDecision, error) {
		var checks []window.Check
		for _, event := range events {
			checks = append(checks, window.Check{Limiter: n.Limiter, Event: event})
		}
		return window.AllowAll(t.Context(), checks...)
	}
	d, err := ask("all", "a", "all", "more", "all")
	if err != nil || !d.Allowed || len(d.Decisions) != 5 || d.Decisions[2].Override != window.OverrideUnlimited || d.Decisions[3].Override != window.OverrideLimits {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err = ask("a", "none", "more"); err != nil || d.Allowed || len(d.Decisions) != 2 || d.RetryAfter < 59*time.Minute || usedOf(t, n.Limiter, "a") != 1 {
		t.Errorf("with a blocked event: %+v, %v", d, err)
	}
	if d, err = ask("all", "all"); err != nil || !d.Allowed || len(d.Decisions) != 2 {
		t.Errorf("all unlimited: %+v, %v", d, err)
	}
	must(n.Allow(t.Context(), "a"))
	if d, err = ask("all", "more", "a", "all"); err != nil || d.Allowed || len(d.Decisions) != 3 || d.Decisions[1].Counted != 0 || usedOf(t, n.Limiter, "more") != 1 {
		t.Errorf("with a denied event: %+v, %v", d, err)
	}
	do(t, redistest.Client(t), "SET", key(t, n.Limiter, "foreign"), "hello")
	if _, err = ask("all", "more", "foreign"); err == nil || !strings.HasSuffix(err.Error(), "(check 3 of AllowAll)") {
		t.Error(err)
	}
}

// TestOverrideWakes checks that a waiter notices that another process ends a block, or sets an
// override while the waiter sleeps under its limits.
func TestOverrideWakes(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	n := newNight(t, window.On(client), func(cfg *window.Config) { cfg.Now = nil })
	other := newNight(t, window.On(client), func(cfg *window.Config) { cfg.Name, cfg.Now = n.Name(), nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n.override("blocked", window.Override{Mode: window.OverrideBlock})
	other.awaits("blocked", window.OverrideBlock)
	if d, err := n.Wait(ctx, "blocked"); !errors.Is(err, context.DeadlineExceeded) || d.Override != window.OverrideBlock || ctx.Err() != nil {
		t.Errorf("%+v, %v", d, err)
	}
	n.attempts("used up", 2)
	waits, leave := context.WithCancel(t.Context())
	defer time.AfterFunc(time.Minute, leave).Stop()
	waited := make(chan window.Decision)
	for event, change := range map[string]func(){
		"blocked": func() { other.end("blocked") },
		"used up": func() { other.override("used up", window.Override{Mode: window.OverrideUnlimited}) },
	} {
		go func() {
			d, _ := n.Wait(waits, event)
			waited <- d
		}()
		change()
		if d := <-waited; !d.Allowed {
			t.Errorf("%s: %+v", event, d)
		}
	}
}

// TestOverrideInOutage checks that overrides read before an outage stay in force during the outage:
// limits if there is a Fallback, and the other modes even without a Fallback.
func TestOverrideInOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1h")}))
	n := newNight(t, window.On(server.Client(t)), func(cfg *window.Config) { cfg.Now, cfg.Fallback = nil, local })
	n.override("more", window.Override{Limits: parsed("3/1h")})
	n.override("none", window.Override{Mode: window.OverrideBlock})
	server.Kill(t)
	if d := must(n.AllowN(t.Context(), "more", 3)); !d.Allowed || !d.Degraded || d.Override != window.OverrideLimits {
		t.Errorf("%+v", d)
	} else if check(t, n.Refund(t.Context(), "more", d)); !must(n.AllowN(t.Context(), "more", 3)).Allowed {
		t.Error("the Fallback did not get the units back")
	}
	if d := must(n.Allow(t.Context(), "none")); d.Allowed || d.Degraded || d.Override != window.OverrideBlock {
		t.Errorf("%+v", d)
	}
	if err := n.Override(t.Context(), "e", window.Override{Mode: window.OverrideBlock, Why: "why"}, time.Hour); !errors.Is(err, window.ErrOutage) && !errors.Is(err, window.ErrUncertain) {
		t.Error(err)
	}
}

// TestOverrideAndDenialCache checks that a cached denial is not returned under other limits, and that
// this limiter forgets it when it sets or ends an override.
func TestOverrideAndDenialCache(t *testing.T) {
	remembered := false
	n := newNight(t, window.On(redistest.Client(t)), func(cfg *window.Config) {
		cfg.Now, cfg.DenialCache, cfg.Observe = nil, 10, func(_ context.Context, o window.Observation) { remembered = o.Trace.Remembered }
	})
	n.attempts("e", 6)
	n.override("e", window.Override{Limits: parsed("3/1h")})
	if d := must(n.Allow(t.Context(), "e")); !d.Allowed {
		t.Errorf("%+v", d)
	}
	for range 2 { // the override ends, and is then set again
		for !remembered {
			n.attempts("e", 1)
		}
		if ended := must(n.EndOverride(t.Context(), "e")); !ended {
			check(t, n.Override(t.Context(), "e", window.Override{Mode: window.OverrideLimits, Limits: parsed("3/1h"), Why: "on call"}, time.Hour))
		}
		if n.attempts("e", 1); remembered {
			t.Error("a denial from before the change is repeated")
		}
	}
}

// TestOverridesList checks what Overrides returns, and that with a Secret, neither the key nor the
// value in Redis contains an event.
func TestOverridesList(t *testing.T) {
	client := redistest.Client(t)
	long := strings.Repeat("x", 200)
	for _, secret := range [][]byte{nil, []byte("sixteen bytes...")} {
		n := newNight(t, window.On(client), func(cfg *window.Config) { cfg.Secret = secret })
		events := []string{"alice@example.com", "ü {}%", long}
		for _, event := range events {
			n.override(event, window.Override{Limits: parsed("5/1h", "1/5s"), By: "ann"})
		}
		all := must(n.Overrides(t.Context()))
		if len(all) != 3 {
			t.Fatalf("%+v", all)
		}
		for i, got := range all {
			want := window.Override{
				Mode: window.OverrideLimits, Limits: parsed("5/1h", "1/5s"), Why: "on call", By: "ann",
				Event: events[i], Tag: got.Tag, Since: noon, Until: noon.Add(time.Hour),
			}
			if secret != nil || events[i] == long {
				want.Event = ""
			}
			if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(key(t, n.Limiter, events[i]), "{"+got.Tag+"}") {
				t.Error(diff)
			}
		}
		value := must(client.Do(t.Context(), client.B().Get().Key(n.Name()+":{overrides}:o").Build()).ToString())
		if strings.Contains(value, "alice") != (secret == nil) {
			t.Errorf("with the secret %q, Redis holds %q", secret, value)
		}
	}
}

// TestOverrideMistakes checks the errors for invalid overrides. Each error must say what to do.
func TestOverrideMistakes(t *testing.T) {
	conn := window.On(redistest.Client(t))
	n := newNight(t, conn, nil)
	good := window.Override{Mode: window.OverrideBlock, Why: "why"}
	with := func(change func(*window.Override)) window.Override {
		o := good
		change(&o)
		return o
	}
	for want, of := range map[string]struct {
		o window.Override
		d time.Duration
	}{
		"an override for 0s; choose 1ms to 366 days":        {good, 0},
		"an override for 8784h0m1s; choose":                 {good, 366*24*time.Hour + time.Second},
		"an override with a Why of 0 bytes; say why":        {with(func(o *window.Override) { o.Why = "" }), time.Hour},
		"an override with a Why of 201 bytes; say why":      {with(func(o *window.Override) { o.Why = strings.Repeat("x", 201) }), time.Hour},
		"an override with a By of 65 bytes; use at most":    {with(func(o *window.Override) { o.By = strings.Repeat("x", 65) }), time.Hour},
		`an override with the Mode "no"; choose`:            {with(func(o *window.Override) { o.Mode = "no" }), time.Hour},
		`with the Mode "block" and limits; choose`:          {with(func(o *window.Override) { o.Limits = parsed("5/1h") }), time.Hour},
		"no limits; give at least one":                      {with(func(o *window.Override) { o.Mode = window.OverrideLimits }), time.Hour},
		"limit 100/1m@5s; it keeps no Resolution, so leave": {with(func(o *window.Override) { o.Mode, o.Limits = window.OverrideLimits, parsed("100/1m@5s") }), time.Hour},
	} {
		if err := n.Override(t.Context(), "e", of.o, of.d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
	if err := n.Override(t.Context(), "", good, time.Hour); !errors.Is(err, window.ErrEmptyEvent) {
		t.Error(err)
	}
	plain := must(window.New(conn, window.Config{Name: "plain", Limits: parsed("1/1h")}))
	if _, err := plain.Overrides(t.Context()); err == nil || !strings.Contains(err.Error(), "it was created without Overrides; set Config.Overrides") {
		t.Error(err)
	}
}

// TestOverridesUnread checks that Observe receives once that overrides cannot be read, with the
// reason and an error that says what to do, and once that they can be read again.
func TestOverridesUnread(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		begin, end []string
		reason     window.Reason
		says       string
	}{
		{[]string{"SET", "unread:{overrides}:o", "hello"}, []string{"DEL", "unread:{overrides}:o"}, "", "remove it, or rename the limiter"},
		{[]string{"ACL", "SETUSER", "default", "resetkeys", "~{*}:w", "~*:{*}:w"}, []string{"ACL", "SETUSER", "default", "~*"}, window.ReasonNoPerm, "~unread:*"},
	} {
		server, seen := redistest.Start(t), make(chan window.Observation, 10)
		do(t, server.Client(t), of.begin...)
		n := newNight(t, window.On(server.Client(t)), func(cfg *window.Config) {
			cfg.Name = "unread"
			cfg.Observe = func(_ context.Context, o window.Observation) {
				if o.Kind == window.KindOverridesUnread || o.Kind == window.KindOverridesRead {
					seen <- o
				}
			}
		})
		must(n.Allow(t.Context(), "e"))
		o := <-seen
		if o.Kind != window.KindOverridesUnread || o.Limiter != "unread" || window.ReasonOf(o.Err) != of.reason || errors.Is(o.Err, window.ErrOutage) != (of.reason != "") || !strings.Contains(fmt.Sprint(o.Err), of.says) {
			t.Errorf("%+v", o)
		}
		do(t, server.Client(t), of.end...)
		n.override("e", window.Override{Mode: window.OverrideBlock})
		if o = <-seen; o.Kind != window.KindOverridesRead || o.Err != nil || len(seen) > 0 {
			t.Errorf("%+v", o)
		}
	}
}

// TestOverrideAddsNoCommand checks that a limiter reads its overrides once every 5 s, and that a
// block sends nothing.
func TestOverrideAddsNoCommand(t *testing.T) {
	server := redistest.Start(t)
	n, began := newNight(t, window.On(server.Client(t)), nil), time.Now()
	n.ReadOverridesEvery(5 * time.Second)
	n.override("none", window.Override{Mode: window.OverrideBlock})
	calls := func() (total int64) {
		stats := must(server.Do(t.Context(), "INFO", "commandstats").ToString())
		for _, m := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
			total += must(strconv.ParseInt(m[1], 10, 64))
		}
		return total
	}
	before := calls()
	n.attempts("e", 100)
	n.attempts("none", 100)
	if sent, reads := calls()-before, int64(time.Since(began)/(5*time.Second))+1; sent < 100 || sent > 100+reads {
		t.Errorf("%d script calls for 100 decisions and up to %d reads", sent, reads)
	}
}
