package faulttest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// A fault is a way in which Redis fails to answer.
type fault struct {
	name string
	args []string // the server's arguments
	// begin starts the fault, and returns a function that ends the fault. The client admin is not
	// affected by the fault.
	begin func(t *testing.T, s *redistest.Server, f *redistest.Faults, admin rueidis.Client) (end func())
	says  string        // a text that the errors contain
	sent  bool          // some attempts may have been counted
	late  time.Duration // how much later replies come; 0 if there are none
	needs []redistest.Feature
}

var allFaults = []fault{
	{name: "killed", sent: true, says: "refused", begin: func(t *testing.T, s *redistest.Server, _ *redistest.Faults, _ rueidis.Client) func() {
		s.Kill(t)
		return func() { s.Restart(t) }
	}},
	{name: "hung", sent: true, says: "no reply within 200ms", begin: func(t *testing.T, s *redistest.Server, _ *redistest.Faults, _ rueidis.Client) func() {
		s.Pause(t)
		return func() { s.Resume(t) }
	}},
	{name: "slow by 500 ms", sent: true, late: 500 * time.Millisecond, says: "no reply within 200ms", begin: func(_ *testing.T, _ *redistest.Server, f *redistest.Faults, _ rueidis.Client) func() {
		f.Delay(500 * time.Millisecond)
		return func() { f.Delay(0) }
	}},
	{name: "full", says: "OOM", begin: func(t *testing.T, _ *redistest.Server, _ *redistest.Faults, admin rueidis.Client) func() {
		do(t, admin, "CONFIG", "SET", "maxmemory", "1")
		return func() { do(t, admin, "CONFIG", "SET", "maxmemory", "0") }
	}},
	{name: "read-only", says: "READONLY", begin: func(t *testing.T, _ *redistest.Server, _ *redistest.Faults, admin rueidis.Client) func() {
		do(t, admin, "CONFIG", "SET", "replica-serve-stale-data", "yes")
		do(t, admin, "REPLICAOF", "127.0.0.1", "1")
		return func() { do(t, admin, "REPLICAOF", "NO", "ONE") }
	}},
	{name: "refusing logins", sent: true, says: "NOAUTH", begin: func(t *testing.T, _ *redistest.Server, f *redistest.Faults, admin rueidis.Client) func() {
		do(t, admin, "CONFIG", "SET", "requirepass", "secret")
		f.Cut()
		return func() { do(t, admin, "CONFIG", "SET", "requirepass", "") }
	}},
	{name: "forbidding scripts", says: "NOPERM", begin: func(t *testing.T, _ *redistest.Server, _ *redistest.Faults, admin rueidis.Client) func() {
		do(t, admin, "ACL", "SETUSER", "default", "-evalsha")
		return func() { do(t, admin, "ACL", "SETUSER", "default", "+evalsha") }
	}},
	{
		name: "loading", says: "LOADING", sent: true, needs: []redistest.Feature{redistest.DebugFlag}, args: []string{"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024", "--key-load-delay", "500"},
		begin: func(t *testing.T, _ *redistest.Server, _ *redistest.Faults, admin rueidis.Client) func() {
			do(t, admin, "DEBUG", "POPULATE", redistest.UnlessShort("5000", "2000"), "load", "100")
			var over atomic.Bool
			var loading sync.WaitGroup
			loading.Go(func() {
				for again := true; again; again = !over.Load() {
					if err := admin.Do(context.Background(), admin.B().Arbitrary("DEBUG", "RELOAD").Build()).Error(); err != nil {
						t.Error(err)
					}
				}
			})
			return func() {
				over.Store(true)
				loading.Wait()
			}
		},
	},
}

func do(t *testing.T, c rueidis.Client, command ...string) {
	t.Helper()
	if err := c.Do(t.Context(), c.B().Arbitrary(command...).Build()).Error(); err != nil {
		t.Fatalf("%q: %v", command, err)
	}
}

// Trouble injects each fault under load, with and without a Fallback. It checks that callers get a
// correct answer in time, and that Redis decides again after the fault has ended. With -v, it prints
// the table in docs/outages.md.
func Trouble(t *testing.T, open Open) {
	for _, f := range allFaults {
		for _, withFallback := range []bool{false, true} {
			name := f.name
			if withFallback {
				name += ", with a Fallback"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f.test(t, open, withFallback)
			})
		}
	}
}

// Timeout is the Timeout of limiters whose Redis hangs in these tests. Other tests wait for a minute,
// because a busy machine can be slow.
const Timeout = 200 * time.Millisecond

const faultCallers = 16

func (f fault) test(t *testing.T, open Open, withFallback bool) {
	for _, feature := range f.needs {
		redistest.Needs(t, feature)
	}
	server := redistest.Start(t, f.args...)
	faults := &redistest.Faults{}
	admin := server.NewClient(t, func(o *rueidis.ClientOption) { o.ConnWriteTimeout = time.Minute })
	cfg := window.Config{Name: "trouble", Limits: parsed("1000000/1h"), Timeout: Timeout}
	if withFallback {
		cfg.Fallback = must(window.NewLocal(cfg))
	}
	l := must(window.New(open(t, server.Options(func(o *rueidis.ClientOption) {
		faults.Break(o)
		o.ConnWriteTimeout = time.Second // so that the client closes connections while the server hangs
	})), cfg))
	AwaitAnswer(t, l, "e")
	end := f.begin(t, server, faults, admin)
	seen, timers := &recorder{}, redistest.Timers(faultCallers, Timeout)
	for late := time.Now().Add(time.Minute); ; { // on a busy machine, the breaker can open because of delays, and the next probe comes a second later
		if seen.load(t, l, faultCallers, redistest.UnlessShort(1500*time.Millisecond, 3*Timeout)); withFallback || seen.says(f.says) || time.Now().After(late) {
			break
		}
	}
	f.check(t, seen, withFallback)
	if longest, limit := seen.quantile(1), timers.Limit(); longest > limit {
		t.Errorf("a call took %v, longer than %v", longest, limit)
	}
	end()
	t.Logf("| %s | %v | %v | %v | %v |", strings.TrimPrefix(t.Name(), "TestTrouble/"), seen.quantile(0.5), seen.quantile(0.99), seen.quantile(1), AwaitAnswer(t, l, "e"))
}

// A recorder records what callers get during a fault.
type recorder struct {
	mu                          sync.Mutex
	took                        []time.Duration
	good, degraded              int
	quickest                    time.Duration // how long the quickest of the good ones took
	outages, uncertain, foreign []error
	late                        int // uncertain, because no reply came in time
}

// load runs the given number of callers for the duration d. Each of them makes an attempt every 5
// ms, for one of 500 events.
func (r *recorder) load(tb testing.TB, l *window.Limiter, callers int, d time.Duration) {
	tb.Helper()
	var group sync.WaitGroup
	begin := time.Now()
	for c := range callers {
		group.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for n := 0; time.Since(begin) < d; n++ {
				called := time.Now()
				d, err := l.Allow(tb.Context(), fmt.Sprint("event-", (c*31+n)%500))
				r.add(time.Since(called), d, err)
				<-pace.C
			}
		})
	}
	group.Wait()
}

// clear discards everything recorded so far.
func (r *recorder) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took, r.good, r.degraded, r.quickest, r.outages, r.uncertain, r.foreign, r.late = nil, 0, 0, 0, nil, nil, nil, 0
}

// says reports whether any error contains text.
func (r *recorder) says(text string) bool {
	return strings.Contains(fmt.Sprint(r.outages, r.uncertain), text)
}

func (r *recorder) add(took time.Duration, d window.Decision, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = append(r.took, took)
	switch {
	case err == nil && d.Degraded:
		r.degraded++
	case err == nil:
		if r.good++; r.good == 1 || took < r.quickest {
			r.quickest = took
		}
	case errors.Is(err, context.DeadlineExceeded):
		r.foreign = append(r.foreign, err) // the callers here have no deadline
	case errors.Is(err, window.ErrUncertain):
		r.uncertain = append(r.uncertain, err)
		if strings.Contains(err.Error(), "no reply within") {
			r.late++
		}
	case errors.Is(err, window.ErrOutage):
		r.outages = append(r.outages, err)
	default:
		r.foreign = append(r.foreign, err)
	}
}

func (r *recorder) quantile(q float64) time.Duration { return quantile(r.took, q) }
func quantile(ds []time.Duration, q float64) time.Duration {
	ds = slices.Clone(ds)
	slices.Sort(ds)
	return ds[min(len(ds)-1, int(q*float64(len(ds))))].Round(100 * time.Nanosecond)
}

func (f fault) check(t *testing.T, r *recorder, withFallback bool) {
	t.Helper()
	failed := len(r.outages) + len(r.uncertain)
	switch {
	case len(r.foreign) > 0:
		t.Errorf("%d errors say neither that nothing was counted nor that it may have been, such as %v", len(r.foreign), r.foreign[0])
	case withFallback && (failed > 0 || r.degraded == 0):
		t.Errorf("%d calls failed, %d were decided by the Fallback", failed, r.degraded)
	case !withFallback && (failed == 0 || r.degraded > 0):
		t.Errorf("%d calls failed, %d were decided without the Fallback", failed, r.degraded)
	case r.good > 0 && f.name != "loading" && f.name != "read-only" && (f.late == 0 || r.quickest < f.late):
		t.Errorf("%d calls succeeded, the quickest within %v", r.good, r.quickest)
	case !f.sent && len(r.uncertain) > r.late: // on a busy machine, a refusal can be late
		t.Errorf("nothing was counted, but the errors of %d calls say that it may have been: %v", len(r.uncertain), r.uncertain[0])
	case !f.sent && slices.ContainsFunc(r.outages, f.isUnexplained):
		t.Errorf("some errors do not name their cause, such as %v", r.outages[slices.IndexFunc(r.outages, f.isUnexplained)])
	case !withFallback && !r.says(f.says):
		t.Errorf("none of %d errors says %q, but %v", failed, f.says, r.outages[:min(3, len(r.outages))])
	}
}

// isUnexplained reports whether err names neither the cause nor that the machine was late.
func (f fault) isUnexplained(err error) bool {
	return !strings.Contains(err.Error(), f.says) && !strings.Contains(err.Error(), "within "+Timeout.String())
}

// AwaitAnswer makes attempts for event until Redis decides, and returns how long that took. A
// limiter's first call connects, which can take longer than a short Timeout.
func AwaitAnswer(t *testing.T, l *window.Limiter, event string) time.Duration {
	t.Helper()
	begin, pace := time.Now(), time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for ; ; <-pace.C {
		d, err := l.Allow(t.Context(), event)
		if err == nil && !d.Degraded {
			return time.Since(begin).Round(time.Millisecond)
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("Redis does not decide: %+v, %v", d, err)
		}
	}
}

// CallsUnderLoad makes many attempts for two hot events and for other events that share script
// calls, and compares the server's counts with the answers. After every 500 answers, either all
// connections are cut or a reply is lost, and many callers leave at random times. The server must
// have counted each allowed attempt exactly once, and in addition at most the uncertain ones. A cut
// must not count as an outage.
func CallsUnderLoad(t *testing.T, open Open) {
	for name, most := range map[string]int64{"allowed": 1_000_000, "denied": 3000} {
		t.Run(name, func(t *testing.T) {
			faults, calls := &redistest.Faults{}, &redistest.Calls{}
			var seen Outages
			conn := open(t, redistest.Options(t, func(o *rueidis.ClientOption) { faults.Break(o); calls.Count(o) }))
			l := must(window.New(conn, window.Config{Name: redistest.Key(t), Limits: []window.Limit{window.PerHour(most)}, Timeout: time.Minute, Observe: seen.Observe}))
			AwaitGroups(t, l, calls)
			together, tallies := calls.Several.Load(), map[string]*tally{"hot": {}, "hotter": {}}
			for _, event := range numbered(40) {
				tallies[event] = &tally{}
			}
			answered := askUntilAnswered(t, l, tallies, redistest.UnlessShort[int64](20_000, 5000))
			for cut := false; answered.await(answered.n.Load() + 500); cut = !cut {
				if cut {
					faults.Cut()
				} else {
					faults.LoseReply("EVALSHA")
				}
			}
			if reports := seen.Kinds(); len(reports) > 0 {
				t.Errorf("reported %v", reports)
			}
			AwaitAnswer(t, l, "e")
			uncertain := int64(0)
			for event, a := range tallies {
				a.check(t, must(l.Inspect(t.Context(), event)).Limits[0].Used, most)
				uncertain += a.uncertain.Load()
			}
			if together = calls.Several.Load() - together; uncertain == 0 || together == 0 {
				t.Errorf("weak test: %d attempts uncertain, %d script calls for several events", uncertain, together)
			}
			t.Logf("%d script calls for several events", together)
		})
	}
}

// A tally counts the outcomes of the attempts for an event.
type tally struct{ asked, allowed, denied, uncertain, refused atomic.Int64 }

// add counts the outcome of an attempt. It reports whether Redis answered.
func (a *tally) add(t *testing.T, d window.Decision, err error) (answered bool) {
	a.asked.Add(1)
	switch {
	case err == nil && d.Allowed:
		a.allowed.Add(1)
	case err == nil:
		a.denied.Add(1)
	case errors.Is(err, window.ErrUncertain):
		a.uncertain.Add(1)
	case errors.Is(err, window.ErrOutage), strings.Contains(err.Error(), "nothing was sent"):
		a.refused.Add(1)
	default:
		t.Error(err)
	}
	return err == nil
}

// check compares the tally with counted, the units that Redis has counted in the end. The limit is
// most units.
func (a *tally) check(t *testing.T, counted, most int64) {
	t.Helper()
	asked, allowed, denied, uncertain, refused := a.asked.Load(), a.allowed.Load(), a.denied.Load(), a.uncertain.Load(), a.refused.Load()
	t.Logf("%d asked: %d allowed, %d denied, %d uncertain, %d refused; %d counted", asked, allowed, denied, uncertain, refused, counted)
	if asked != allowed+denied+uncertain+refused {
		t.Error("not every attempt is accounted for")
	}
	if counted < allowed || counted > min(most, allowed+uncertain) || denied > 0 && counted != most {
		t.Errorf("%d of %d are counted", counted, most)
	}
}

// An answerCount counts the answers from Redis to callers that keep making attempts until there are
// enough answers.
type answerCount struct {
	enough int64
	n      atomic.Int64
	end    chan struct{} // closed once all callers have ended
}

// askUntilAnswered starts 64 callers that make attempts for the events until Redis has answered
// often enough. Half of the attempts are for a hot event. In every fourth attempt, the caller
// leaves at a random time.
func askUntilAnswered(t *testing.T, l *window.Limiter, tallies map[string]*tally, enough int64) *answerCount {
	c := &answerCount{enough: enough, end: make(chan struct{})}
	events := slices.Collect(maps.Keys(tallies))
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for i := 0; c.n.Load() < enough && !t.Failed(); i++ {
				ctx, leave := context.WithCancel(t.Context())
				if i%4 == 0 {
					time.AfterFunc(rand.N(2*time.Millisecond), leave)
				}
				event := events[rand.IntN(len(events))]
				if hot := rand.IntN(4); hot < 2 {
					event = []string{"hot", "hotter"}[hot]
				}
				if d, err := l.Allow(ctx, event); tallies[event].add(t, d, err) {
					c.n.Add(1)
				}
				leave()
			}
		})
	}
	go func() { callers.Wait(); close(c.end) }()
	return c
}

// await waits until Redis has answered n times, or until all callers have ended if n is enough. It
// returns false if all callers have ended.
func (c *answerCount) await(n int64) bool {
	for c.n.Load() < n {
		select {
		case <-c.end:
			return false
		default:
			runtime.Gosched()
		}
	}
	if n < c.enough {
		return true
	}
	<-c.end
	return false
}

// NobodyElsesDeadline checks that a short deadline affects only its own caller, even if callers
// share a connection of a client that has the default options of rueidis.
func NobodyElsesDeadline(t *testing.T, open Open) {
	var failed atomic.Int64 // a caller with a short deadline may still get its answer in some rounds
	for range redistest.UnlessShort(20, 5) {
		faults := &redistest.Faults{}
		conn := open(t, redistest.Options(t, func(o *rueidis.ClientOption) { o.DialCtxFn, o.AlwaysPipelining = faults.Dial, false }))
		l := must(window.New(conn, window.Config{Name: redistest.Key(t), Limits: parsed("1000000/1h"), Timeout: time.Minute}))
		must(l.Allow(t.Context(), "e"))
		faults.Delay(5 * time.Millisecond)
		var callers sync.WaitGroup
		callers.Go(func() {
			hasty, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := l.Allow(hasty, "e"); errors.Is(err, context.DeadlineExceeded) {
				failed.Add(1)
			} else if err != nil {
				t.Errorf("the hasty caller: %v", err)
			}
		})
		for range 4 {
			callers.Go(func() {
				if _, err := l.Allow(t.Context(), "e"); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
	}
	if failed.Load() == 0 {
		t.Error("weak test: no caller was hasty enough")
	}
}

// Outages records a limiter's reports that an outage started or ended.
type Outages struct {
	mu    sync.Mutex
	kinds []window.Kind
}

// Observe records an observation. Use it as Config.Observe.
func (o *Outages) Observe(_ context.Context, seen window.Observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seen.Kind == window.KindOutageBegan || seen.Kind == window.KindOutageEnded {
		o.kinds = append(o.kinds, seen.Kind)
	}
}

// Kinds returns the kinds of the recorded reports, in order.
func (o *Outages) Kinds() []window.Kind {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.kinds)
}

// AwaitEnd waits until an outage has ended, and checks that there was only one.
func (o *Outages) AwaitEnd(t *testing.T) {
	t.Helper()
	for late := time.Now().Add(time.Minute); len(o.Kinds()) < 2 && time.Now().Before(late); {
		<-time.After(10 * time.Millisecond)
	}
	if kinds := o.Kinds(); !slices.Equal(kinds, []window.Kind{window.KindOutageBegan, window.KindOutageEnded}) {
		t.Errorf("reported %q", kinds)
	}
}

// NoOutage checks that canceled calls, short deadlines, and foreign values in Redis do not count as
// an outage, however often they occur.
func NoOutage(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	var seen Outages
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("5/1h")}))
	cfg := window.Config{Name: "none", Limits: parsed("5/1h"), Fallback: local, Observe: seen.Observe, Timeout: time.Minute}
	l := must(window.New(open(t, server.Options(nil)), cfg))
	do(t, client, "SET", must(l.Inspect(t.Context(), "foreign")).Key, "hello")
	do(t, client, "RPUSH", must(l.Inspect(t.Context(), "list")).Key, "hello")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 * 3 {
		for _, event := range []string{"foreign", "list"} {
			if _, err := l.Allow(t.Context(), event); err == nil || errors.Is(err, window.ErrOutage) || errors.Is(err, window.ErrUncertain) {
				t.Errorf("%s: %v", event, err)
			}
		}
		server.Pause(t)
		short, cancelShort := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := l.Allow(short, "e"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a short deadline: %v", err)
		}
		cancelShort()
		during, cancelDuring := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancelDuring)
		if _, err := l.Allow(during, "e"); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in between: %v", err)
		}
		if _, err := l.Allow(cancelled, "e"); !errors.Is(err, context.Canceled) || errors.Is(err, window.ErrUncertain) {
			t.Errorf("cancelled before: %v", err)
		}
		server.Resume(t)
	}
	if d, err := l.Allow(t.Context(), "other"); err != nil || d.Degraded || len(seen.Kinds()) > 0 {
		t.Errorf("%+v, %v, %v", d, err, seen.Kinds())
	}
}

// OutageBeginsAndEnds checks that Observe receives one report when an outage starts and one when it
// ends, and that the Fallback decides in between without reports of its own.
func OutageBeginsAndEnds(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	var seen Outages
	var fallback atomic.Int64
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("3/1h"), Observe: func(context.Context, window.Observation) { fallback.Add(1) }}))
	l := must(window.New(open(t, server.Options(nil)), window.Config{Name: "begin", Limits: parsed("5/1h"), Timeout: Timeout, Fallback: local, Observe: seen.Observe}))
	AwaitAnswer(t, l, "warm")
	server.Pause(t)
	for n := range 5 {
		if d, err := l.Allow(t.Context(), "e"); err != nil || !d.Degraded || d.Allowed != (n < 3) || d.Usage[0].Limit.Max != 3 {
			t.Errorf("attempt %d: %+v, %v", n, d, err)
		}
	}
	if same := slices.Equal(seen.Kinds(), []window.Kind{window.KindOutageBegan}); !same {
		t.Errorf("reported %v", seen.Kinds())
	}
	server.Resume(t)
	AwaitAnswer(t, l, "e")
	seen.AwaitEnd(t)
	if n := fallback.Load(); n != 0 {
		t.Errorf("the Fallback reported %d times", n)
	}
}

// DegradedIsRefundedInTheFallback checks that units that the Fallback has counted are refunded in
// the Fallback, and that Reset forgets the event both in Redis and in the Fallback.
func DegradedIsRefundedInTheFallback(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("2/1h")}))
	cfg := window.Config{Name: "refund", Limits: parsed("5/1h"), Timeout: time.Minute}
	conn := open(t, server.Options(nil))
	first := must(must(window.New(conn, cfg)).AllowN(t.Context(), "e", 2))
	cfg.Timeout, cfg.Fallback = Timeout, local
	l := must(window.New(conn, cfg))
	server.Pause(t)
	d := must(l.AllowN(t.Context(), "e", 2))
	if !d.Degraded || !d.Allowed || must(local.Peek(t.Context(), "e")).Allowed {
		t.Fatalf("%+v", d)
	}
	if err := l.Refund(t.Context(), "e", d); err != nil || must(local.Inspect(t.Context(), "e")).Limits[0].Used != 0 {
		t.Errorf("%v", err)
	}
	must(l.AllowN(t.Context(), "e", 1))
	if err := l.Refund(t.Context(), "e", first); !errors.Is(err, window.ErrOutage) && !errors.Is(err, window.ErrUncertain) {
		t.Errorf("a decision of Redis is refunded only there: %v", err)
	}
	server.Resume(t)
	AwaitAnswer(t, l, "e")
	if err := l.Reset(t.Context(), "e"); err != nil || must(local.Inspect(t.Context(), "e")).Limits[0].Used != 0 {
		t.Errorf("after a Reset the Fallback still counts: %v", err)
	}
}

// OneShardDown checks that the events of two masters are decided while the third master is
// unreachable.
func OneShardDown(t *testing.T, open Open) {
	t.Parallel()
	nodes := redistest.Cluster(t).Nodes()
	var all []string
	for address := range nodes {
		if c, err := net.DialTimeout("tcp", address, time.Second); err != nil {
			t.Skipf("the node %s cannot be reached from here, as with Docker on systems other than Linux: %v", address, err)
		} else {
			c.Close()
		}
		all = append(all, address)
	}
	slices.Sort(all)
	down, up := &redistest.Faults{}, &redistest.Faults{}
	conn := open(t, rueidis.ClientOption{InitAddress: all[1:], AlwaysPipelining: true, DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if addr == all[0] {
			return down.Dial(ctx, addr, d, nil)
		}
		return up.Dial(ctx, addr, d, nil)
	}})
	var seen Outages
	cfg := window.Config{Name: redistest.Key(t), Limits: parsed("1000000/1h"), Timeout: time.Minute}
	of := eventsByNode(t, must(window.New(conn, cfg)), nodes, all)
	cfg.Observe = seen.Observe
	l := must(window.New(conn, cfg))
	down.Refuse(1 << 30)
	down.Cut()
	for range 20 {
		for i, events := range of {
			for _, event := range events {
				if _, err := l.Allow(t.Context(), event); (err == nil) != (i > 0) {
					t.Fatalf("node %d, %s: %v", i, event, err)
				}
			}
		}
	}
	together := slices.Concat(of...)
	redistest.AtOnce(len(together), func(i int) {
		if _, err := l.Allow(t.Context(), together[i]); (err == nil) == slices.Contains(of[0], together[i]) {
			t.Errorf("%s, together with all others: %v", together[i], err)
		}
	})
	if kinds := seen.Kinds(); !slices.Equal(kinds, []window.Kind{window.KindOutageBegan}) {
		t.Errorf("reported %q", kinds)
	}
	down.Refuse(0)
	for _, event := range of[0] {
		AwaitAnswer(t, l, event)
	}
	seen.AwaitEnd(t)
}

// eventsByNode returns a few events of each node.
func eventsByNode(t *testing.T, l *window.Limiter, nodes map[string]rueidis.Client, addresses []string) [][]string {
	t.Helper()
	of := make([][]string, len(addresses))
	for n := range 60 {
		event := fmt.Sprint("event-", n)
		must(l.Allow(t.Context(), event))
		key := must(l.Inspect(t.Context(), event)).Key
		for i, address := range addresses {
			err := nodes[address].Do(t.Context(), nodes[address].B().Type().Key(key).Build()).Error()
			if err == nil && len(of[i]) < 4 {
				of[i] = append(of[i], event)
			}
		}
	}
	return of
}

// TimeoutIsKept checks that no call takes longer than Timeout even if the client is not waiting for
// a reply, but for a connection to a server that hangs or for room in the client's queue.
func TimeoutIsKept(t *testing.T, open Open) {
	t.Parallel()
	for name, cut := range map[string]bool{"connecting": true, "queueing": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, faults := redistest.Start(t), &redistest.Faults{}
			l := must(window.New(open(t, server.Options(faults.Break)), window.Config{Name: "timeout", Limits: parsed("1000000/1h"), Timeout: Timeout}))
			for range 100 { // until the client has opened all connections
				AwaitAnswer(t, l, "e")
			}
			server.Pause(t)
			if cut {
				faults.Cut()
			}
			took := make([]time.Duration, 3000)
			timers := redistest.Timers(len(took), Timeout)
			redistest.AtOnce(len(took), func(i int) {
				called := time.Now()
				_, err := l.Allow(t.Context(), "e")
				took[i] = time.Since(called)
				if !errors.Is(err, window.ErrUncertain) && !errors.Is(err, window.ErrOutage) {
					t.Error(err)
				}
			})
			if longest, limit := slices.Max(took), timers.Limit(); longest > limit {
				t.Errorf("a call took %v, longer than %v", longest, limit)
			}
			server.Resume(t)
			AwaitAnswer(t, l, "e")
		})
	}
}

// ConnectingTakesLonger checks that a limiter recovers even if connecting takes longer than
// Timeout, as it can with TLS or over a long distance.
func ConnectingTakesLonger(t *testing.T, open Open) {
	t.Parallel()
	faults := &redistest.Faults{}
	conn := open(t, redistest.Options(t, func(o *rueidis.ClientOption) {
		o.PipelineMultiplex = -1 // one connection, because a call fails for each connection that is opened
		o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			select {
			case <-time.After(5 * Timeout / 2):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return faults.Dial(ctx, addr, d, c)
		}
	}))
	l := must(window.New(conn, window.Config{Name: redistest.Key(t), Limits: parsed("1000000/1h"), Timeout: Timeout}))
	AwaitAnswer(t, l, "e")
	faults.Cut()
	AwaitAnswer(t, l, "e")
}

// FallbackFails checks that, if the Fallback fails too, the error still states whether Redis may
// have counted the attempt.
func FallbackFails(t *testing.T, open Open) {
	server, faults := redistest.Start(t), &redistest.Faults{}
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("2/1h")}))
	l := must(window.New(open(t, server.Options(faults.Break)), window.Config{Name: "fails", Limits: parsed("5/1h"), Timeout: time.Minute, Fallback: local}))
	must(l.Allow(t.Context(), "e"))
	faults.LoseReply("EVALSHA")
	_, err := l.AllowN(t.Context(), "e", 3)
	if !errors.Is(err, window.ErrUncertain) || errors.Is(err, window.ErrExceedsLimit) || !strings.Contains(err.Error(), "the Fallback failed, too: ") {
		t.Errorf("%v", err)
	}
	if used := must(l.Inspect(t.Context(), "e")).Limits[0].Used; used != 4 {
		t.Errorf("%d are counted", used)
	}
}

// WaitWhileDegraded checks that Wait tries Redis again, and does not wait until the Fallback would
// allow the attempt.
func WaitWhileDegraded(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1h")}))
	l := must(window.New(open(t, server.Options(nil)), window.Config{Name: "wait", Limits: parsed("1000/1h"), Timeout: Timeout, Fallback: local}))
	AwaitAnswer(t, l, "e")
	must(local.Allow(t.Context(), "e"))
	server.Pause(t)
	if d := must(l.Allow(t.Context(), "e")); d.Allowed || !d.Degraded {
		t.Fatalf("%+v", d)
	}
	server.Resume(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if d, err := l.Wait(ctx, "e"); err != nil || d.Degraded {
		t.Errorf("%+v, %v", d, err)
	}
}

// AbandonedCallsAreBounded checks that the number of calls in flight stays bounded if callers keep
// retrying without a pause while Redis hangs.
func AbandonedCallsAreBounded(t *testing.T, open Open) {
	server := redistest.Start(t)
	l := must(window.New(open(t, server.Options(nil)), window.Config{Name: "bounded", Limits: parsed("1000000/1h"), Timeout: time.Minute}))
	must(l.Allow(t.Context(), "e"))
	server.Pause(t)
	var refused atomic.Int64
	redistest.AtOnce(64, func(int) {
		for refused.Load() == 0 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := l.Allow(ctx, "e"); errors.Is(err, window.ErrOutage) {
				refused.Add(1)
			}
			cancel()
		}
	})
	if n := runtime.NumGoroutine(); n > 4096+64+1100 { // including those of rueidis
		t.Errorf("%d goroutines", n)
	}
	server.Resume(t)
	AwaitAnswer(t, l, "e")
}
