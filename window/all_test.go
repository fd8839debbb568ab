package window_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// A subjectLog is the exact log of one subject.
type subjectLog struct {
	*exactLog
	limits []window.Limit
}

// TestJointHistories compares random joint attempts with exact logs. Some attempts check a subject
// several times. On Redis, the checks are decided one by one, because the limiters have a clock.
func TestJointHistories(t *testing.T) {
	t.Parallel()
	for _, client := range []rueidis.Client{nil, redistest.Client(t), redistest.Cluster(t)} {
		c := &clock{}
		c.set(noon)
		var limiters []*window.Limiter
		logs := map[string]*subjectLog{}
		for i, text := range []string{"5/1m", "3/10s", "8/1h"} {
			cfg := window.Config{Name: fmt.Sprint(redistest.Key(t), i), Limits: parsed(text), Now: c.now, Timeout: time.Minute}
			if client == nil {
				limiters = append(limiters, must(window.NewLocal(cfg)))
			} else {
				limiters = append(limiters, must(window.New(window.On(client), cfg)))
			}
			for _, event := range []string{"a", "b"} {
				logs[fmt.Sprint(i, event)] = &subjectLog{newExactLog(), cfg.Limits}
			}
		}
		allowed, attempts := 0, redistest.UnlessShort(400, 50)
		for range attempts {
			checks, subjects := randomChecks(limiters)
			if playAll(t, checks, subjects, logs, c.now(), client == nil) {
				allowed++
			}
			c.pass(time.Duration(rand.IntN(20_000)) * time.Millisecond)
		}
		if allowed < attempts/10 || allowed > attempts*9/10 {
			t.Errorf("weak test: %d of %d allowed", allowed, attempts)
		}
	}
}

func randomChecks(limiters []*window.Limiter) (checks []window.Check, subjects []string) {
	for range 1 + rand.IntN(4) {
		i, event := rand.IntN(len(limiters)), []string{"a", "b"}[rand.IntN(2)]
		subject := fmt.Sprint(i, event)
		checks = append(checks, window.Check{Limiter: limiters[i], Event: event, N: 1 + rand.Int64N(2)})
		subjects = append(subjects, subject)
	}
	return checks, subjects
}

// playAll makes one joint attempt. It compares the answer, and the units counted after it, with the
// logs. In memory, AllowAll also peeks at the checks after a denial.
func playAll(t *testing.T, checks []window.Check, subjects []string, logs map[string]*subjectLog, now time.Time, inMemory bool) bool {
	t.Helper()
	if sum := sums(checks, subjects); slices.ContainsFunc(subjects, func(subject string) bool { return sum[subject] > logs[subject].limits[0].Max }) {
		if _, err := window.AllowAll(t.Context(), checks...); !errors.Is(err, window.ErrExceedsLimit) {
			t.Fatalf("%v: %v", subjects, err)
		}
		return false
	}
	want, denied := window.JointDecision{Allowed: true}, len(subjects)
	before := map[string]*exactLog{}
	for i, subject := range subjects {
		log := logs[subject]
		if before[subject] == nil {
			before[subject] = log.clone()
		}
		if d := log.decide(log.limits, "allow", checks[i].N, now.UnixMilli(), false); !d.Allowed {
			want, denied = window.JointDecision{RetryAfter: d.RetryAfter}, i
			break
		}
	}
	for subject, log := range before {
		if !want.Allowed {
			logs[subject].exactLog = log
		}
	}
	for i := denied + 1; i < len(subjects) && inMemory; i++ {
		log := logs[subjects[i]]
		want.RetryAfter = max(want.RetryAfter, log.decide(log.limits, "peek", checks[i].N, now.UnixMilli(), false).RetryAfter)
	}
	got, err := window.AllowAll(t.Context(), checks...)
	counted := 0
	for _, d := range got.Decisions {
		counted += int(d.Counted)
	}
	if err != nil || got.Allowed != want.Allowed || got.RetryAfter != want.RetryAfter || (counted > 0) != want.Allowed {
		t.Fatalf("%v: got %+v, %v; want %+v", subjects, got, err, want)
	}
	for i, subject := range subjects {
		log := logs[subject]
		want := log.inspect(log.limits, now.UnixMilli(), false)[0].Used
		if used := usedOf(t, checks[i].Limiter, checks[i].Event); used != want {
			t.Fatalf("%v: %s counts %d, not %d", subjects, subject, used, want)
		}
	}
	return want.Allowed
}

// sums returns the total cost of the checks for each subject.
func sums(checks []window.Check, subjects []string) map[string]int64 {
	sum := map[string]int64{}
	for i, subject := range subjects {
		sum[subject] += checks[i].N
	}
	return sum
}

// TestJointUnderLoad runs many callers from shared addresses. Most attempts are on an account that
// is soon used up, and every fourth is on an account that is not. The test checks that no limit is
// exceeded, and that all units of denied attempts are given back. It logs how many attempts were
// denied although there was room for all their units.
func TestJointUnderLoad(t *testing.T) {
	t.Parallel()
	const callers, times = 16, 100
	client := redistest.Cluster(t)
	of := func(name, text string) *window.Limiter {
		return must(window.New(window.On(client), window.Config{Name: redistest.Key(t) + name, Limits: parsed(text), Timeout: time.Minute}))
	}
	limiters := map[string]*window.Limiter{"used up": of("account", "5/1h"), "free": of("account", "1000/1h")}
	for i := range 4 {
		limiters[fmt.Sprint("address ", i)] = of("address", "106/1h") // 100 on the free account, 5 on the other, and 1 of 4 callers at a time
	}
	var mu sync.Mutex
	allowed, denied := map[string]int64{}, map[string]int64{}
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for i := range times {
				from, on := fmt.Sprint("address ", caller%4), "used up"
				if i%4 == 0 {
					on = "free"
				}
				j, err := window.AllowAll(t.Context(), window.Check{Limiter: limiters[from], Event: from, N: 1}, window.Check{Limiter: limiters[on], Event: on, N: 1})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if j.Allowed {
					allowed[from]++
					allowed[on]++
				} else if len(j.Decisions) == 1 { // nothing is forgotten within an hour, so the address had room all the time
					denied[on]++
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for subject, l := range limiters {
		d := must(l.Peek(t.Context(), subject)) // would count one more unit
		if used := d.Usage[0].Used; used != min(allowed[subject]+1, d.Usage[0].Limit.Max) || allowed[subject] > d.Usage[0].Limit.Max {
			t.Errorf("%s counts %+v after %d allowed", subject, d.Usage, allowed[subject])
		}
	}
	if allowed["used up"] != 5 || allowed["free"]+denied["free"] != callers*times/4 {
		t.Errorf("allowed %v, denied %v", allowed, denied)
	}
	t.Logf("%d of %d attempts were denied although there was room, because of other attempts' units being refunded", denied["free"], callers*times/4)
}

// joint holds two limiters, each on its own server.
type joint struct {
	servers  [2]*redistest.Server
	clients  [2]rueidis.Client
	limiters [2]*window.Limiter
	between  func() // called after the first limiter has decided
}

// newJoint returns two limiters. The first has a Timeout that is long enough even on a busy
// machine, and the second has the given Timeout.
func newJoint(t *testing.T, timeout time.Duration) *joint {
	t.Helper()
	j := &joint{between: func() {}}
	for i := range j.servers {
		j.servers[i] = redistest.Start(t)
		cfg := window.Config{Name: redistest.Key(t), Limits: parsed("2/1h"), Timeout: []time.Duration{10 * time.Second, timeout}[i]}
		if i == 0 {
			cfg.Observe = func(context.Context, window.Observation) { j.between() }
		}
		j.clients[i] = j.servers[i].Client(t)
		j.limiters[i] = must(window.New(window.On(j.clients[i]), cfg))
	}
	return j
}

func (j *joint) allow(ctx context.Context) (window.JointDecision, error) {
	return window.AllowAll(ctx, window.Check{Limiter: j.limiters[0], Event: "e", N: 2}, window.Check{Limiter: j.limiters[1], Event: "e", N: 1})
}

// fill uses up the second limiter.
func (j *joint) fill(t *testing.T) {
	t.Helper()
	must(j.limiters[1].AllowN(t.Context(), "e", 2))
}

// TestJointReturnsWhatItTook ends a joint attempt in every possible way after its first check has
// counted 2 units, and checks how many of them stay counted.
func TestJointReturnsWhatItTook(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		trouble func(t *testing.T, j *joint, cancel func())
		allowed bool
		err     error // the returned error must match this
		says    string
		stay    int64 // of the 2 units
	}{
		{name: "nothing happens", allowed: true, stay: 2, trouble: func(*testing.T, *joint, func()) {}},
		{name: "denial", trouble: func(t *testing.T, j *joint, _ func()) { j.fill(t) }},
		{name: "denial, cancelled", trouble: func(t *testing.T, j *joint, cancel func()) {
			j.fill(t)
			j.between = cancel
		}, err: context.Canceled, says: "nothing was sent"},
		{name: "cancelled", trouble: func(_ *testing.T, j *joint, cancel func()) { j.between = cancel }, err: context.Canceled, says: "nothing was sent"},
		{name: "foreign value", trouble: func(t *testing.T, j *joint, _ func()) {
			do(t, j.servers[1].Client(t), "RPUSH", key(t, j.limiters[1], "e"), "1")
		}, says: "WRONGTYPE"},
		{name: "the second server dies", trouble: func(t *testing.T, j *joint, _ func()) {
			j.between = func() { j.servers[1].Kill(t) }
		}, err: window.ErrOutage},
		{name: "the second server hangs", trouble: func(t *testing.T, j *joint, _ func()) {
			j.between = func() { j.servers[1].Pause(t) }
		}, err: window.ErrUncertain},
		{name: "denial, and the first server forbids the refund", trouble: func(t *testing.T, j *joint, _ func()) {
			j.fill(t)
			j.between = func() { do(t, j.servers[0].Client(t), "ACL", "SETUSER", "default", "-evalsha") }
		}, err: window.ErrOutage, says: "2 units stay counted", stay: 2},
		{name: "foreign value, and the first server forbids the refund", trouble: func(t *testing.T, j *joint, _ func()) {
			do(t, j.servers[1].Client(t), "RPUSH", key(t, j.limiters[1], "e"), "1")
			j.between = func() { do(t, j.servers[0].Client(t), "ACL", "SETUSER", "default", "-evalsha") }
		}, err: window.ErrOutage, says: "2 units stay counted", stay: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			timeout := 10 * time.Second // enough for an answer on a busy machine
			if errors.Is(tt.err, window.ErrUncertain) {
				timeout = 3 * time.Second // enough to send the call
			}
			j := newJoint(t, timeout)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tt.trouble(t, j, cancel)
			got, err := j.allow(ctx)
			if got.Allowed != tt.allowed || (err != nil) != (tt.err != nil || tt.says != "") || tt.err != nil && !errors.Is(err, tt.err) || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %+v, %v", got, err)
			}
			if counted := countedOf(got); !tt.allowed && len(got.Decisions) > 0 && counted != tt.stay {
				t.Errorf("the decisions say that %d units stay", counted)
			}
			do(t, j.servers[0].Client(t), "ACL", "SETUSER", "default", "+evalsha")
			if used := usedOf(t, j.limiters[0], "e"); used != tt.stay {
				t.Errorf("the first counts %d, not %d", used, tt.stay)
			}
		})
	}
}

func countedOf(j window.JointDecision) (units int64) {
	for _, d := range j.Decisions {
		units += d.Counted
	}
	return units
}

// TestJointKeepsDenialsThatCount checks that an attempt stays counted in a limiter that denied it
// and counts denied attempts, and in no other limiter.
func TestJointKeepsDenialsThatCount(t *testing.T) {
	first := must(window.NewLocal(window.Config{Name: "first", Limits: parsed("9/1h"), CountDenied: true}))
	second := must(window.NewLocal(window.Config{Name: "second", Limits: parsed("1/1h"), CountDenied: true}))
	for i := range int64(4) {
		got, err := window.AllowAll(t.Context(), window.Check{Limiter: first, Event: "e", N: 1}, window.Check{Limiter: second, Event: "e", N: 1})
		if err != nil || got.Allowed != (i == 0) || usedOf(t, first, "e") != 1 || usedOf(t, second, "e") != i+1 {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
	}
}

// TestJointRefuses checks that mistakes are reported before anything is counted.
func TestJointRefuses(t *testing.T) {
	asked := 0
	l := must(window.NewLocal(window.Config{Name: "l", Limits: parsed("2/1h"), Observe: func(context.Context, window.Observation) { asked++ }}))
	valid := window.Check{Limiter: l, Event: "e", N: 1}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx    context.Context
		checks []window.Check
		want   string
	}{
		{t.Context(), nil, "slidegate: AllowAll has no checks; give it at least one"},
		{t.Context(), []window.Check{valid, {Event: "e", N: 1}}, "slidegate: check 2 of AllowAll has no Limiter from New or NewLocal; create one"},
		{t.Context(), []window.Check{valid, {Limiter: &window.Limiter{}, Event: "e", N: 1}}, "slidegate: check 2 of AllowAll has no Limiter from New or NewLocal; create one"},
		{t.Context(), []window.Check{valid, {Limiter: l, N: 1}}, `slidegate: limiter "l": ` + window.ErrEmptyEvent.Error() + " (check 2 of AllowAll)"},
		{t.Context(), []window.Check{valid, {Limiter: l, Event: "e", N: -1}}, `slidegate: limiter "l": ` + window.ErrInvalidCost.Error() + ", not -1 (check 2 of AllowAll)"},
		{t.Context(), []window.Check{valid, {Limiter: l, Event: "e"}, {Limiter: l, Event: "e"}}, `slidegate: limiter "l": 3 units under 2/1h: ` + window.ErrExceedsLimit.Error() + " (check 3 of AllowAll)"},
		{t.Context(), []window.Check{valid, {Limiter: l, Event: "e", N: 3}}, `slidegate: limiter "l": 4 units under 2/1h: ` + window.ErrExceedsLimit.Error() + " (check 2 of AllowAll)"},
		{t.Context(), []window.Check{valid, {Limiter: l, Event: "f", N: 2}, valid, valid}, `slidegate: limiter "l": 3 units under 2/1h: ` + window.ErrExceedsLimit.Error() + " (check 4 of AllowAll)"},
		{t.Context(), []window.Check{{Limiter: with(l, "1/1h"), Event: "e"}, {Limiter: with(l, "1/1h"), Event: "e"}}, `slidegate: limiter "l": 2 units under 1/1h: ` + window.ErrExceedsLimit.Error() + " (check 2 of AllowAll)"},
		{t.Context(), []window.Check{{Limiter: l, Event: "e", N: 1 << 62}, {Limiter: l, Event: "e", N: 1 << 62}}, `slidegate: limiter "l": 4611686018427387904 units under 2/1h: ` + window.ErrExceedsLimit.Error() + " (check 1 of AllowAll)"},
		{gone, []window.Check{valid}, `slidegate: limiter "l": nothing was sent: context canceled (check 1 of AllowAll)`},
	} {
		got, err := window.AllowAll(tt.ctx, tt.checks...)
		if diff := cmp.Diff(window.JointDecision{}, got); err == nil || err.Error() != tt.want || diff != "" {
			t.Errorf("got %v, want %s\n%s", err, tt.want, diff)
		}
	}
	if used := usedOf(t, l, "e"); used != 0 || asked != 0 {
		t.Errorf("%d units are counted, %d decisions", used, asked)
	}
}

// TestJointWhenTheProcessDies runs this binary again, and the new process dies between the two
// checks of a joint attempt. The unit that it counted must stay until it is forgotten, and no
// longer.
func TestJointWhenTheProcessDies(t *testing.T) {
	t.Parallel()
	c := &clock{}
	c.set(noon)
	cfg := window.Config{Name: "dying", Limits: parsed("1/1h"), Timeout: time.Minute, Now: c.now}
	if address := os.Getenv("SLIDEGATE_TEST_DYING"); address != "" {
		client := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}}))
		cfg.Observe = func(context.Context, window.Observation) { os.Exit(3) }
		l := must(window.New(window.On(client), cfg))
		_, err := window.AllowAll(t.Context(), window.Check{Limiter: l, Event: "e", N: 1}, window.Check{Limiter: l, Event: "other", N: 1})
		t.Fatalf("the process did not die: %v", err)
	}
	server := redistest.Start(t)
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestJointWhenTheProcessDies$")
	again.Env = append(os.Environ(), "SLIDEGATE_TEST_DYING="+server.Addr())
	out, err := again.CombinedOutput()
	if again.ProcessState.ExitCode() != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	l := must(window.New(window.On(server.Client(t)), cfg))
	if d := must(l.Allow(t.Context(), "e")); d.Allowed || d.RetryAfter != time.Hour {
		t.Errorf("%+v", d)
	}
	if c.pass(time.Hour); !must(l.Allow(t.Context(), "e")).Allowed {
		t.Error("the unit is not forgotten")
	}
}
