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

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// A trouble is a way in which Redis does not answer.
type trouble struct {
	name string
	args []string // of the server
	// begin makes the trouble, and returns what ends it. The admin is a client that it does not reach.
	begin func(t *testing.T, s *redistest.Server, f *redistest.Faults, admin rueidis.Client) (end func())
	says  string // in the error
	sent  bool   // some attempts may have been counted
	needs []redistest.Feature
}

var troubles = []trouble{
	{name: "killed", sent: true, says: "refused", begin: func(t *testing.T, s *redistest.Server, _ *redistest.Faults, _ rueidis.Client) func() {
		s.Kill(t)
		return func() { s.Restart(t) }
	}},
	{name: "hung", sent: true, says: "nothing came within 200ms", begin: func(t *testing.T, s *redistest.Server, _ *redistest.Faults, _ rueidis.Client) func() {
		s.Pause(t)
		return func() { s.Resume(t) }
	}},
	{name: "slow by 500 ms", sent: true, says: "nothing came within 200ms", begin: func(_ *testing.T, _ *redistest.Server, f *redistest.Faults, _ rueidis.Client) func() {
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
			loaded := make(chan error)
			go func() {
				loaded <- admin.Do(context.Background(), admin.B().Arbitrary("DEBUG", "RELOAD").Build()).Error()
			}()
			return func() {
				if err := <-loaded; err != nil {
					t.Error(err)
				}
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

// Trouble makes each trouble under load, without and with a Fallback: the caller learns the truth in time, and soon
// after the end Redis decides again. With -v it prints the table of docs/outages.md.
func Trouble(t *testing.T, open Open) {
	for _, tr := range troubles {
		for _, withFallback := range []bool{false, true} {
			name := tr.name
			if withFallback {
				name += ", with a Fallback"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tr.test(t, open, withFallback)
			})
		}
	}
}

// The times of these tests.
const (
	Timeout        = 200 * time.Millisecond
	troubleCallers = 16
	backIn         = 2 * time.Second // after the end of a trouble; the limiter itself needs one at most
	Slack          = 2 * time.Second // what a busy machine may take beyond any of these
)

func (tr trouble) test(t *testing.T, open Open, withFallback bool) {
	for _, f := range tr.needs {
		redistest.Needs(t, f)
	}
	server := redistest.Start(t, tr.args...)
	faults := &redistest.Faults{}
	admin := server.NewClient(t, func(o *rueidis.ClientOption) { o.ConnWriteTimeout = time.Minute })
	cfg := window.Config{Name: "trouble", Limits: parsed("1000000/1h"), Timeout: Timeout}
	if withFallback {
		cfg.Fallback = must(window.NewLocal(cfg))
	}
	l := must(window.NewOn(open(t, server.Options(faults.Break)), cfg))
	AwaitRecovery(t, l)
	end := tr.begin(t, server, faults, admin)
	seen := &witness{}
	for range 10 { // on a busy machine, the breaker can open for lateness, and the next probe comes a second later
		if seen.load(t, l, troubleCallers, redistest.UnlessShort(1500*time.Millisecond, 3*Timeout)); withFallback || seen.says(tr.says) {
			break
		}
	}
	tr.check(t, seen, withFallback)
	end()
	t.Logf("| %s | %v | %v | %v | %v |", strings.TrimPrefix(t.Name(), "TestTrouble/"), seen.quantile(0.5), seen.quantile(0.99), seen.quantile(1), AwaitRecovery(t, l))
}

// A witness is what callers saw in a trouble.
type witness struct {
	mu                          sync.Mutex
	took                        []time.Duration
	good, degraded              int
	outages, uncertain, foreign []error
	late                        int // of the uncertain: no reply came in time
}

// load has callers ask for half a thousand events, a call every 5 ms each, for some time.
func (w *witness) load(t *testing.T, l *window.Limiter, callers int, d time.Duration) {
	t.Helper()
	var group sync.WaitGroup
	begin := time.Now()
	for c := range callers {
		group.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for n := 0; time.Since(begin) < d; n++ {
				called := time.Now()
				d, err := l.Allow(t.Context(), fmt.Sprint("event-", (c*31+n)%500))
				w.add(time.Since(called), d, err)
				<-pace.C
			}
		})
	}
	group.Wait()
}

// says reports whether any error has some text.
func (w *witness) says(text string) bool {
	return strings.Contains(fmt.Sprint(w.outages, w.uncertain), text)
}

func (w *witness) add(took time.Duration, d window.Decision, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, took)
	switch {
	case err == nil && d.Degraded:
		w.degraded++
	case err == nil:
		w.good++
	case errors.Is(err, context.DeadlineExceeded):
		w.foreign = append(w.foreign, err) // the callers here have no deadline
	case errors.Is(err, window.ErrUncertain):
		w.uncertain = append(w.uncertain, err)
		if strings.Contains(err.Error(), "nothing came within") {
			w.late++
		}
	case errors.Is(err, window.ErrOutage):
		w.outages = append(w.outages, err)
	default:
		w.foreign = append(w.foreign, err)
	}
}

func (w *witness) quantile(q float64) time.Duration { return quantile(w.took, q) }
func quantile(ds []time.Duration, q float64) time.Duration {
	ds = slices.Clone(ds)
	slices.Sort(ds)
	return ds[min(len(ds)-1, int(q*float64(len(ds))))].Round(100 * time.Nanosecond)
}

func (tr trouble) check(t *testing.T, w *witness, withFallback bool) {
	t.Helper()
	failed := len(w.outages) + len(w.uncertain)
	switch {
	case len(w.foreign) > 0:
		t.Errorf("%d errors say neither that nothing was counted nor that it may have been, such as %v", len(w.foreign), w.foreign[0])
	case withFallback && (failed > 0 || w.degraded == 0):
		t.Errorf("%d calls failed, %d were decided by the Fallback", failed, w.degraded)
	case !withFallback && (failed == 0 || w.degraded > 0):
		t.Errorf("%d calls failed, %d were decided by no Fallback", failed, w.degraded)
	case w.good > 0 && tr.name != "loading" && tr.name != "read-only":
		t.Errorf("%d calls went well", w.good)
	case !tr.sent && (len(w.uncertain) > w.late || w.late > 3*troubleCallers): // on a busy machine, a refusal can be late
		t.Errorf("nothing was counted, but it is said of %d calls that they may have been: %v", len(w.uncertain), w.uncertain[0])
	case !tr.sent && slices.ContainsFunc(w.outages, func(err error) bool { return !strings.Contains(err.Error(), tr.says) }):
		t.Errorf("not every error names its cause, such as %v", w.outages[len(w.outages)-1])
	case !withFallback && !w.says(tr.says):
		t.Errorf("none of %d errors says %q, but %v", failed, tr.says, w.outages[:min(3, len(w.outages))])
	}
	if longest := w.quantile(1); longest > Timeout+Slack {
		t.Errorf("a call took %v", longest)
	}
}

// AwaitRecovery returns how long it takes until Redis decides again.
func AwaitRecovery(t *testing.T, l *window.Limiter) time.Duration {
	t.Helper()
	begin := time.Now()
	AwaitAnswer(t, l, "e")
	took := time.Since(begin)
	if took > backIn+Slack {
		t.Errorf("Redis decided again only after %v", took)
	}
	return took.Round(time.Millisecond)
}

// AwaitAnswer attempts an event until Redis decides. The first call of a limiter connects, which can take longer than a short Timeout.
func AwaitAnswer(t *testing.T, l *window.Limiter, event string) {
	t.Helper()
	begin, pace := time.Now(), time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for ; ; <-pace.C {
		d, err := l.Allow(t.Context(), event)
		if err == nil && !d.Degraded {
			return
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("Redis does not decide: %+v, %v", d, err)
		}
	}
}

// EveryCallIsAccountedFor checks the count of the server after a load on two hot events, in which all connections are cut or a
// reply is lost, again and again, and many callers leave at random moments. It counted all that was admitted, nothing twice, and
// beyond that at most what was uncertain. One cut is no outage.
func EveryCallIsAccountedFor(t *testing.T, open Open) {
	for name, most := range map[string]int64{"admitted": 1_000_000, "denied": 3000} {
		t.Run(name, func(t *testing.T) {
			faults := &redistest.Faults{}
			var seen Outages
			l := must(window.NewOn(open(t, redistest.Options(t, faults.Break)), window.Config{Name: redistest.Key(t), Limits: []window.Limit{window.PerHour(most)}, Timeout: time.Minute, Observe: seen.Observe}))
			accounts := map[string]*account{"hot": {}, "hotter": {}}
			answered := askUntilAnswered(t, l, accounts, redistest.UnlessShort[int64](20_000, 5000))
			for next := int64(500); answered.await(next); next += 500 {
				if next%1000 == 0 {
					faults.Cut()
				} else {
					faults.LoseReply("EVALSHA")
				}
			}
			if told := seen.Kinds(); len(told) > 0 {
				t.Errorf("told of %v", told)
			}
			AwaitRecovery(t, l)
			for event, a := range accounts {
				a.check(t, must(l.Inspect(t.Context(), event)).Limits[0].Used, most)
			}
		})
	}
}

// An account says what became of the attempts on an event.
type account struct{ asked, admitted, denied, uncertain, refused atomic.Int64 }

// add counts an attempt. It reports whether Redis answered.
func (a *account) add(t *testing.T, d window.Decision, err error) (answered bool) {
	a.asked.Add(1)
	switch {
	case err == nil && d.Allowed:
		a.admitted.Add(1)
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

// check compares the account with what is counted in the end, of at most most units.
func (a *account) check(t *testing.T, counted, most int64) {
	t.Helper()
	asked, admitted, denied, uncertain, refused := a.asked.Load(), a.admitted.Load(), a.denied.Load(), a.uncertain.Load(), a.refused.Load()
	t.Logf("%d asked: %d admitted, %d denied, %d uncertain, %d refused; %d counted", asked, admitted, denied, uncertain, refused, counted)
	if asked != admitted+denied+uncertain+refused {
		t.Error("not every attempt is accounted for")
	}
	if counted < admitted || counted > min(most, admitted+uncertain) || denied > 0 && counted != most {
		t.Errorf("%d are counted of %d", counted, most)
	}
	if uncertain == 0 {
		t.Error("a poor test: nothing was uncertain")
	}
}

// An answerCount says how often Redis answered callers that ask until that is enough.
type answerCount struct {
	enough int64
	n      atomic.Int64
	end    chan struct{} // closed once all callers have ended
}

// askUntilAnswered has 64 callers ask about the events until Redis answered often enough. Every fourth time a caller leaves at a random
// moment.
func askUntilAnswered(t *testing.T, l *window.Limiter, accounts map[string]*account, enough int64) *answerCount {
	c := &answerCount{enough: enough, end: make(chan struct{})}
	events := slices.Collect(maps.Keys(accounts))
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for i := 0; c.n.Load() < enough && !t.Failed(); i++ {
				ctx, leave := context.WithCancel(t.Context())
				if i%4 == 0 {
					time.AfterFunc(rand.N(2*time.Millisecond), leave)
				}
				event := events[rand.IntN(len(events))]
				if d, err := l.Allow(ctx, event); accounts[event].add(t, d, err) {
					c.n.Add(1)
				}
				leave()
			}
		})
	}
	go func() { callers.Wait(); close(c.end) }()
	return c
}

// await returns once Redis answered n times. It reports false when all callers have ended.
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

// NobodyElsesDeadline checks that on a connection of a client with rueidis' own defaults, a caller with a short deadline fails alone.
func NobodyElsesDeadline(t *testing.T, open Open) {
	var failed atomic.Int64 // a caller that the machine runs late may find its answer there
	for range redistest.UnlessShort(20, 5) {
		faults := &redistest.Faults{}
		conn := open(t, redistest.Options(t, func(o *rueidis.ClientOption) { o.DialCtxFn, o.AlwaysPipelining = faults.Dial, false }))
		l := must(window.NewOn(conn, window.Config{Name: redistest.Key(t), Limits: parsed("1000000/1h"), Timeout: 10 * time.Second}))
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
		t.Error("a poor test: no caller was hasty enough")
	}
}

// Outages are what a limiter reports of the beginning and the end of outages.
type Outages struct {
	mu   sync.Mutex
	told []window.Observation
}

// Observe is for Config.Observe.
func (o *Outages) Observe(_ context.Context, seen window.Observation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seen.Kind == window.OutageBegan || seen.Kind == window.OutageEnded {
		o.told = append(o.told, seen)
	}
}

// Kinds returns what was reported, in order.
func (o *Outages) Kinds() (kinds []window.Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seen := range o.told {
		kinds = append(kinds, seen.Kind)
	}
	return kinds
}

// NoOutage checks that what callers do, and what stands in Redis, is no outage, however often.
func NoOutage(t *testing.T, open Open) {
	t.Parallel()
	faults := &redistest.Faults{}
	client := redistest.Client(t)
	var seen Outages
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("5/1h")}))
	cfg := window.Config{Name: redistest.Key(t), Limits: parsed("5/1h"), Fallback: local, Observe: seen.Observe, Timeout: 10 * time.Second}
	l := must(window.NewOn(open(t, redistest.Options(t, faults.Break)), cfg))
	do(t, client, "SET", must(l.Inspect(t.Context(), "foreign")).Key, "hello")
	do(t, client, "RPUSH", must(l.Inspect(t.Context(), "list")).Key, "hello")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	faults.Delay(50 * time.Millisecond)
	for range 2 * 3 {
		for _, event := range []string{"foreign", "list"} {
			if _, err := l.Allow(t.Context(), event); err == nil || errors.Is(err, window.ErrOutage) || errors.Is(err, window.ErrUncertain) {
				t.Errorf("%s: %v", event, err)
			}
		}
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
	}
	if d, err := l.Allow(t.Context(), "other"); err != nil || d.Degraded || len(seen.Kinds()) > 0 {
		t.Errorf("%+v, %v, %v", d, err, seen.told)
	}
}

// OutageBeginsAndEnds checks that Observe learns once of each, and that between them Redis gets only a probe a second.
func OutageBeginsAndEnds(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	var seen Outages
	var fallback atomic.Int64
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("3/1h"), Observe: func(context.Context, window.Observation) { fallback.Add(1) }}))
	l := must(window.NewOn(open(t, server.Options(nil)), window.Config{Name: "begin", Limits: parsed("5/1h"), Timeout: Timeout, Fallback: local, Observe: seen.Observe}))
	AwaitAnswer(t, l, "warm")
	server.Pause(t)
	for n := range 5 {
		if d, err := l.Allow(t.Context(), "e"); err != nil || !d.Degraded || d.Allowed != (n < 3) || d.Usage[0].Limit.Max != 3 {
			t.Errorf("attempt %d: %+v, %v", n, d, err)
		}
	}
	if same := slices.Equal(seen.Kinds(), []window.Kind{window.OutageBegan}); !same {
		t.Errorf("told %v", seen.Kinds())
	}
	server.Resume(t)
	AwaitRecovery(t, l)
	if same := slices.Equal(seen.Kinds(), []window.Kind{window.OutageBegan, window.OutageEnded}); !same || fallback.Load() != 0 {
		t.Errorf("told %v, and the Fallback told %d times", seen.Kinds(), fallback.Load())
	}
}

// DegradedIsRefundedInTheFallback checks that what the Fallback counted is refunded there, and that Reset forgets in both.
func DegradedIsRefundedInTheFallback(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("2/1h")}))
	l := must(window.NewOn(open(t, server.Options(nil)), window.Config{Name: "refund", Limits: parsed("5/1h"), Timeout: Timeout, Fallback: local}))
	AwaitAnswer(t, l, "warm")
	first := must(l.AllowN(t.Context(), "e", 2))
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
		t.Errorf("a decision of Redis is given back there alone: %v", err)
	}
	server.Resume(t)
	AwaitRecovery(t, l)
	if err := l.Reset(t.Context(), "e"); err != nil || must(local.Inspect(t.Context(), "e")).Limits[0].Used != 0 {
		t.Errorf("after a Reset the Fallback still counts: %v", err)
	}
}

// OneShardDown checks that events of two masters are decided while nobody reaches the third.
func OneShardDown(t *testing.T, open Open) {
	nodes := redistest.Cluster(t).Nodes()
	var all []string
	for address := range nodes {
		if c, err := net.DialTimeout("tcp", address, time.Second); err != nil {
			t.Skipf("the node %s cannot be reached from here, as is so with Docker on systems other than Linux: %v", address, err)
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
	of := eventsByNode(t, must(window.NewOn(conn, cfg)), nodes, all)
	cfg.Timeout, cfg.Observe = 2*Timeout, seen.Observe
	l := must(window.NewOn(conn, cfg))
	shared := map[int]bool{}
	for _, event := range of[0] {
		shared[keys.Slot(must(l.Inspect(t.Context(), event)).Key)/256] = true
	}
	for i := range of[1:] { // two masters may share a part
		of[i+1] = slices.DeleteFunc(of[i+1], func(event string) bool { return shared[keys.Slot(must(l.Inspect(t.Context(), event)).Key)/256] })
	}
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
	for i, r := range l.AllowEach(t.Context(), together) {
		if (r.Err == nil) == slices.Contains(of[0], together[i]) {
			t.Errorf("%s, with all others: %v", together[i], r.Err)
		}
	}
	if began := len(seen.Kinds()); began == 0 || began > len(of[0]) {
		t.Errorf("told of %d outages for events in %d parts", began, len(of[0]))
	}
	down.Refuse(0)
	AwaitRecovery(t, l)
}

// eventsByNode finds a few events of each node.
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

// TimeoutIsKept checks that no call takes longer, where the client waits for other things than replies: for a connection to a
// server that hangs, and for a place in the queue of one.
func TimeoutIsKept(t *testing.T, open Open) {
	t.Parallel()
	for name, cut := range map[string]bool{"connecting": true, "queueing": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, faults := redistest.Start(t), &redistest.Faults{}
			l := must(window.NewOn(open(t, server.Options(faults.Break)), window.Config{Name: "timeout", Limits: parsed("1000000/1h"), Timeout: Timeout}))
			for range 100 { // all connections are made
				AwaitAnswer(t, l, "e")
			}
			server.Pause(t)
			if cut {
				faults.Cut()
			}
			var callers sync.WaitGroup
			for range 3000 {
				callers.Go(func() {
					called := time.Now()
					_, err := l.Allow(t.Context(), "e")
					if took := time.Since(called); took > Timeout+Slack || !errors.Is(err, window.ErrUncertain) && !errors.Is(err, window.ErrOutage) {
						t.Errorf("%v after %v", err, took)
					}
				})
			}
			callers.Wait()
			server.Resume(t)
			AwaitRecovery(t, l)
		})
	}
}

// ConnectingTakesLonger than Timeout, as with TLS or from far away: the limiter comes back all the same.
func ConnectingTakesLonger(t *testing.T, open Open) {
	faults := &redistest.Faults{}
	conn := open(t, redistest.Options(t, func(o *rueidis.ClientOption) {
		o.PipelineMultiplex = -1 // one connection: each needs a call that fails to be made
		o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			select {
			case <-time.After(60 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return faults.Dial(ctx, addr, d, c)
		}
	}))
	l := must(window.NewOn(conn, window.Config{Name: redistest.Key(t), Limits: parsed("1000000/1h"), Timeout: 20 * time.Millisecond}))
	AwaitRecovery(t, l)
	faults.Cut()
	AwaitRecovery(t, l)
}

// DeadlinesOfCallers that are shorter than Timeout: a Redis that refuses is noticed, and the Fallback asked, before they end.
func DeadlinesOfCallers(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	var seen Outages
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1000000/1h")}))
	l := must(window.NewOn(open(t, server.Options(nil)), window.Config{Name: "short", Limits: parsed("1000000/1h"), Timeout: 10 * time.Second, Fallback: local, Observe: seen.Observe}))
	must(l.Allow(t.Context(), "e"))
	server.Kill(t)
	for degraded := 0; degraded < 5; {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		d, err := l.Allow(ctx, "e")
		cancel()
		if err != nil && !errors.Is(err, window.ErrUncertain) {
			t.Fatal(err)
		}
		if d.Degraded {
			degraded++
		}
	}
	if !slices.Equal(seen.Kinds(), []window.Kind{window.OutageBegan}) {
		t.Errorf("told %v", seen.Kinds())
	}
}

// FallbackFails checks that the error tells what became of the attempt in Redis.
func FallbackFails(t *testing.T, open Open) {
	server, faults := redistest.Start(t), &redistest.Faults{}
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("2/1h")}))
	l := must(window.NewOn(open(t, server.Options(faults.Break)), window.Config{Name: "fails", Limits: parsed("5/1h"), Fallback: local}))
	must(l.Allow(t.Context(), "e"))
	faults.LoseReply("EVALSHA")
	_, err := l.AllowN(t.Context(), "e", 3)
	if !errors.Is(err, window.ErrUncertain) || errors.Is(err, window.ErrExceedsLimit) || !strings.Contains(err.Error(), "nor does the Fallback decide: ") {
		t.Errorf("%v", err)
	}
	if used := must(l.Inspect(t.Context(), "e")).Limits[0].Used; used != 4 {
		t.Errorf("%d are counted", used)
	}
}

// WaitWhileDegraded checks that Wait asks Redis again before the Fallback would admit.
func WaitWhileDegraded(t *testing.T, open Open) {
	t.Parallel()
	server := redistest.Start(t)
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1h")}))
	l := must(window.NewOn(open(t, server.Options(nil)), window.Config{Name: "wait", Limits: parsed("1000/1h"), Timeout: 50 * time.Millisecond, Fallback: local}))
	must(l.Allow(t.Context(), "e"))
	must(local.Allow(t.Context(), "e"))
	server.Pause(t)
	if d := must(l.Allow(t.Context(), "e")); d.Allowed || !d.Degraded {
		t.Fatalf("%+v", d)
	}
	server.Resume(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if d, err := l.Wait(ctx, "e"); err != nil || d.Degraded {
		t.Errorf("%+v, %v", d, err)
	}
}

// AbandonedCallsAreBounded checks that whoever hammers a Redis that hangs, and does not wait, cannot pile up calls without end.
func AbandonedCallsAreBounded(t *testing.T, open Open) {
	server := redistest.Start(t)
	l := must(window.NewOn(open(t, server.Options(nil)), window.Config{Name: "bounded", Limits: parsed("1000000/1h"), Timeout: time.Minute}))
	must(l.Allow(t.Context(), "e"))
	server.Pause(t)
	var refused atomic.Int64
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for refused.Load() == 0 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				if _, err := l.Allow(ctx, "e"); errors.Is(err, window.ErrOutage) {
					refused.Add(1)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	if n := runtime.NumGoroutine(); n > 4096+64+1100 { // and those of rueidis
		t.Errorf("%d goroutines", n)
	}
	server.Resume(t)
	AwaitRecovery(t, l)
}
