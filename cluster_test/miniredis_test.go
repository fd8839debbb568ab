package cluster_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// TestMiniredis checks that the scripts run on miniredis, with which users test their services. Its Lua
// is not that of Redis, and has no struct, so this test proves nothing about Redis.
func TestMiniredis(t *testing.T) {
	for name, open := range map[string]func(addr string) *window.Connection{
		"rueidis": func(addr string) *window.Connection { return window.Dial("redis://" + addr) },
		"go-redis": func(addr string) *window.Connection {
			return goRedis(t, rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, now := miniredis.RunT(t), time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
			m.SetTime(now)
			m.ClockTTL(true) // keys expire by this clock
			mini := onMiniredis{m.Addr(), open(m.Addr()), func(d time.Duration) {
				now = now.Add(d)
				m.SetTime(now)
			}}
			t.Cleanup(mini.conn.Close)
			t.Run("window", mini.window)
			t.Run("ar1", mini.ar1)
			t.Run("pace", mini.pace)
			t.Run("inflight", mini.inflight)
		})
	}
}

// onMiniredis is a connection to miniredis. pass advances its clock.
type onMiniredis struct {
	addr string
	conn *window.Connection
	pass func(time.Duration)
}

// denyTogether makes the joint call that AllowAll makes once it is proved that there is one server.
func (mini onMiniredis) denyTogether(t *testing.T) {
	t.Helper()
	client := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{mini.addr}, DisableCache: true}))
	defer client.Close()
	limits := []string{"1", "60000", "2", "1"}
	args := slices.Concat([]string{"w:{carol}:w", "w:{bob}:w", "joint", "", "1", "2", "2"}, limits, limits)
	eval := client.B().Arbitrary("EVAL", lua.WindowFor("joint").Source, "2").Args(args...).Build()
	reply := must(client.Do(t.Context(), eval).AsIntSlice())
	if reply[0] != 1 || reply[5] != 0 {
		t.Errorf("a joint call: %v", reply)
	}
}

func (mini onMiniredis) window(t *testing.T) {
	l := must(window.New(mini.conn, window.Config{
		Name: "w", Limits: []window.Limit{window.PerMinute(2), window.PerHour(100)}, Overrides: true, Timeout: time.Minute,
	}))
	mini.decide(t, l, time.Minute)
	s := must(l.Inspect(t.Context(), "alice"))
	if s.Limits[0].Used != 1 || len(s.Limits[1].Buckets) != 1 {
		t.Errorf("inspect: %+v", s)
	}
	both := []window.Check{{Limiter: l, Event: "alice"}, {Limiter: l, Event: "bob", N: 2}}
	joint := must(window.AllowAll(t.Context(), both...))
	if denied := must(window.AllowAll(t.Context(), both...)); !joint.Allowed || denied.Allowed || denied.RetryAfter != time.Minute {
		t.Errorf("AllowAll: %+v, then %+v", joint, denied)
	}
	mini.denyTogether(t)
	if s = must(l.Inspect(t.Context(), "carol")); s.Limits[0].Used != 0 {
		t.Errorf("after a denied joint call: %+v", s)
	}
	undos := []window.Undo{{Limiter: l, Event: "alice", Reset: true}, {Limiter: l, Event: "bob", Decision: joint.Decisions[1]}}
	must("", errors.Join(window.UndoAll(t.Context(), undos...)...))
	some, charged := must(l.AllowUpTo(t.Context(), "bob", 5)), must(l.Charge(t.Context(), "bob", 5))
	if some.Granted != 2 || charged.Usage[0].Used != 7 {
		t.Errorf("AllowUpTo: %+v; Charge: %+v", some, charged)
	}
	must("", l.Override(t.Context(), "bob", window.Override{Mode: window.OverrideBlock, Why: "a test"}, time.Minute))
	if list := must(l.Overrides(t.Context())); len(list) != 1 || list[0].Event != "bob" || !must(l.EndOverride(t.Context(), "bob")) {
		t.Errorf("overrides: %+v", list)
	}
}

func (mini onMiniredis) ar1(t *testing.T) {
	l := must(ar1.New(mini.conn, ar1.Config{Name: "a", Limits: []window.Limit{window.PerMinute(2)}, Timeout: time.Minute}))
	mini.decide(t, l, 0)
	if s := must(l.Inspect(t.Context(), "alice")); s.Limits[0].Used < 1 {
		t.Errorf("inspect: %+v", s)
	}
}

// decide allows two attempts, denies the third one, and allows another after the wait, which must be
// exactly wait unless that is 0. It then leaves one unit free, and one used.
func (mini onMiniredis) decide(t *testing.T, l limiter, wait time.Duration) {
	t.Helper()
	mustAllow(t, l, "alice", 2)
	denied := must(l.Allow(t.Context(), "alice"))
	if denied.Allowed || denied.RetryAfter <= 0 || wait > 0 && denied.RetryAfter != wait {
		t.Errorf("the third attempt: %+v", denied)
	}
	mini.pass(denied.RetryAfter - time.Millisecond)
	if d := must(l.Peek(t.Context(), "alice")); d.Allowed || d.RetryAfter != time.Millisecond {
		t.Errorf("1ms before the end of the wait: %+v", d)
	}
	mini.pass(time.Millisecond)
	mustAllow(t, l, "alice", 1)
	must("", l.Reset(t.Context(), "alice"))
	mustAllow(t, l, "alice", 1)
	d := must(l.Allow(t.Context(), "alice"))
	must("", l.Refund(t.Context(), "alice", d))
	if free := freeUnits(t, l, "alice"); free != 1 {
		t.Errorf("%d units are free after a refund", free)
	}
}

func (mini onMiniredis) pace(t *testing.T) {
	l := must(pace.New(mini.conn, pace.Config{Name: "p", Limits: []window.Limit{window.Every(time.Second)}, Timeout: time.Minute}))
	first, second := must(l.Reserve(t.Context(), "api")), must(l.Reserve(t.Context(), "api"))
	if !first.OK || !second.OK || second.At.Sub(first.At) != time.Second {
		t.Errorf("turns: %+v, %+v", first, second)
	}
	must("", l.Pause(t.Context(), "api", 5*time.Second))
	if due := must(l.Due(t.Context(), second)); due <= 5*time.Second {
		t.Errorf("after a pause, the second turn is due in %v", due)
	}
	if s := must(l.Inspect(t.Context(), "api")); s.Limits[0].Used != 1 || s.Newest.Sub(s.At) != 6*time.Second {
		t.Errorf("inspect: %+v", s)
	}
	must("", l.Cancel(t.Context(), second))
	if s := must(l.Inspect(t.Context(), "api")); s.Limits[0].Used != 0 {
		t.Errorf("after Cancel: %+v", s)
	}
	must("", l.Reset(t.Context(), "api"))
	mini.pass(time.Second)
	must("", l.Wait(t.Context(), "api"))
}

func (mini onMiniredis) inflight(t *testing.T) {
	l := must(inflight.New(mini.conn, inflight.Config{Name: "i", Max: 1000, TTL: time.Hour, Holder: "test", Timeout: time.Minute}))
	lease := must(l.AcquireN(t.Context(), "job", 1000))
	_, d, err := l.TryAcquire(t.Context(), "job")
	if err != nil || d.Used != 1000 || d.RetryAfter != time.Hour {
		t.Errorf("a lease too many: %+v, %v", d, err)
	}
	if s := must(l.Inspect(t.Context(), "job")); s.Used != 1000 || len(s.Leases) != 1 || s.Leases[0].Holder != "test" {
		t.Errorf("inspect: %+v", s)
	}
	must("", lease.Release(t.Context()))
	_ = must(l.Acquire(t.Context(), "job"))
	mini.pass(time.Hour) // in which the lease is not renewed
	if s := must(l.Inspect(t.Context(), "job")); s.Used != 0 {
		t.Errorf("after its end, a lease is held: %+v", s)
	}
	must("", l.Reset(t.Context(), "job"))
	must("", l.Close(t.Context()))
}
