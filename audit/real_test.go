package audit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slidegate/slidegate/audit"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// together runs test for all cases concurrently, because the tests mostly wait.
func together(t *testing.T, cases int, test func(i int) error) {
	t.Helper()
	var group errgroup.Group
	for i := range cases {
		group.Go(func() error { return test(i) })
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// TestWrongInRealTime checks that an audit in real time also finds each fault. On a busy machine an
// audit proves less, so each limiter is audited up to three times. No audit may find anything else.
func TestWrongInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 25 s")
	}
	t.Parallel()
	l := parse(t, "20/1s")
	together(t, len(wrong), func(i int) error {
		w, found := wrong[i], []audit.Kind(nil)
		for range 3 {
			r, err := audit.Run(t.Context(), audit.Config{Claims: []window.Limit{l}, Attempt: w.make(l, time.Now), Fresh: true})
			if err != nil {
				return err
			}
			if found = kinds(r); slices.Equal(found, w.kinds) && strings.HasPrefix(r.Like, w.like) {
				return nil
			}
			if slices.ContainsFunc(found, func(k audit.Kind) bool { return !slices.Contains(w.kinds, k) }) {
				break
			}
		}
		return fmt.Errorf("%s: found %v, want %v", w.name, found, w.kinds)
	})
}

// TestRightInRealTime checks that an audit in real time finds nothing wrong with correct limiters.
func TestRightInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 25 s")
	}
	t.Parallel()
	type right struct {
		claims, name string
		attempt      audit.Func
	}
	var all []right
	for _, claims := range []string{"20/1s", "3/200ms,8/800ms"} {
		all = append(all, right{claims, "memory", local(t, claims, nil, false)}, right{claims, "Redis", shared(t, claims)}, right{claims, "HTTP", limited(t, claims)})
	}
	together(t, len(all), func(i int) error {
		limits, err := audit.ParseClaims(all[i].claims)
		if err != nil {
			return err
		}
		cfg := audit.Config{Claims: limits, Attempt: all[i].attempt, Fresh: true}
		if all[i].name == "HTTP" {
			cfg.WaitStep = time.Second
		}
		r, err := audit.Run(t.Context(), cfg)
		if err == nil && (len(r.Findings) > 0 || r.Denied == 0 || r.Allowed == 0) {
			err = fmt.Errorf("%d allowed, %d denied, found %v", r.Allowed, r.Denied, r.Findings)
		}
		if err != nil {
			return fmt.Errorf("%s under %s: %w", all[i].name, all[i].claims, err)
		}
		return nil
	})
}

// shared returns a limiter on Redis.
func shared(t *testing.T, claims string) audit.Func {
	t.Helper()
	limits, err := audit.ParseClaims(claims)
	if err != nil {
		t.Fatal(err)
	}
	l, err := window.New(window.On(redistest.Client(t)), window.Config{Name: "audit", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return attempts(l, redistest.Key(t))
}

// limited returns a Func that sends requests to a server with httplimit.
func limited(t *testing.T, claims string) audit.Func {
	t.Helper()
	limits, err := audit.ParseClaims(claims)
	if err != nil {
		t.Fatal(err)
	}
	l, err := window.NewLocal(window.Config{Name: "audit", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	m, err := httplimit.New(httplimit.Config{Limiter: l, Key: httplimit.Clients{}.Key, Outage: httplimit.FailClosed, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(s.Close)
	s.Client().Timeout = time.Minute // so that a hang fails where it occurs
	return func(ctx context.Context) (bool, time.Duration, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			return false, 0, err
		}
		resp, err := s.Client().Do(r)
		if err != nil {
			return false, 0, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return resp.StatusCode == http.StatusOK, time.Duration(seconds) * time.Second, nil
	}
}

// TestBubble audits limiters that use package time, in a synctest bubble: correct limiters, and a
// limiter whose fault shows only in attacks that take hours of fake time.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, claims := range []string{"20/1s", "5/1h"} {
			audit.Check(t, claims, local(t, claims, nil, false))
		}
		r, err := audit.Run(t.Context(), audit.Config{Claims: []window.Limit{parse(t, "5/1h")}, Attempt: fixedOfClock(parse(t, "5/1h"), time.Now), Fresh: true})
		if err != nil || !r.Found(audit.KindExcess) || len(r.NotTested) > 1 {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// failed is a testing.TB that records its first fatal message.
type failed struct {
	testing.TB
	message string
}

func (f *failed) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestCheckTestsAll checks that Check fails the test, rather than pass it, if it cannot test all
// claims.
func TestCheckTestsAll(t *testing.T) {
	for _, claims := range []string{"5/1h", "1/1s,5/1m"} {
		f := &failed{TB: t}
		var group sync.WaitGroup
		group.Go(func() { audit.Check(f, claims, local(t, claims, nil, false)) })
		group.Wait()
		if !strings.Contains(f.message, "or call Run") {
			t.Errorf("%s: %q", claims, f.message)
		}
	}
}

// TestTooManyAtOnce checks that an audit continues if attempts fail only because too many are made
// at once.
func TestTooManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		right, open := local(t, "20/1s", nil, false), make(chan bool, 2)
		few := func(ctx context.Context) (bool, time.Duration, error) {
			select {
			case open <- true:
			default:
				return false, 0, errors.New("too many connections")
			}
			defer func() { <-open }()
			time.Sleep(time.Millisecond) //nolint:forbidigo // in a bubble
			return right(ctx)
		}
		if r := run(t, "20/1s", nil, few); r.Unknown < 20 || len(r.Findings) > 0 {
			t.Errorf("%d unknown, found %v", r.Unknown, r.Findings)
		}
	})
}

// TestTimeIsUp checks the report of an audit in which many attempts have no answer when the time is
// up.
func TestTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		right, one := local(t, "5/1s", nil, false), make(chan bool, 1)
		slow := func(ctx context.Context) (bool, time.Duration, error) {
			select {
			case one <- true:
			case <-ctx.Done():
				return false, 0, ctx.Err()
			}
			defer func() { <-one }()
			time.Sleep(400 * time.Millisecond) //nolint:forbidigo // in a bubble
			return right(ctx)
		}
		r, err := audit.Run(t.Context(), audit.Config{Claims: []window.Limit{parse(t, "5/1s")}, Attempt: slow, MaxTime: 14 * time.Second})
		if err != nil || len(r.Findings) > 0 || r.Allowed == 0 || r.Unknown < 5 {
			t.Errorf("%+v: %v", r, err)
		}
	})
}

// TestNoAnswer checks that an audit without any answer returns an error, not a report without
// findings.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) (bool, time.Duration, error) {
			<-ctx.Done()
			return false, 0, ctx.Err()
		}
		if r, err := audit.Run(t.Context(), audit.Config{Claims: []window.Limit{parse(t, "5/1s")}, Attempt: hangs}); err == nil {
			t.Errorf("%d attempts, found %v", len(r.Attempts), r.Findings)
		}
	})
}

// TestNeverMore checks that an audit never exceeds its plan, neither in attempts nor in time.
func TestNeverMore(t *testing.T) {
	for _, f := range []func(window.Limit, clock) audit.Func{sliding, unlimited, stricter, withoutWaits} {
		c := audit.NewClock()
		count := 0
		right := f(parse(t, "20/1s"), c.Now)
		var mu sync.Mutex
		cfg := audit.Config{Claims: []window.Limit{parse(t, "20/1s")}, Clock: c, MaxAttempts: 400, MaxTime: 12 * time.Second}
		cfg.Attempt = func(ctx context.Context) (bool, time.Duration, error) {
			mu.Lock()
			count++
			mu.Unlock()
			return right(ctx)
		}
		plan, err := cfg.Plan()
		if err != nil {
			t.Fatal(err)
		}
		began := c.Now()
		r, err := audit.Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if took := c.Now().Sub(began); count > plan.Attempts || count > 400 || took > plan.Time || took > 12*time.Second {
			t.Errorf("%d attempts in %v; the plan allows %d in %v", count, took, plan.Attempts, plan.Time)
		}
		if len(r.NotTested) == 0 || len(r.Attacks) == 0 {
			t.Errorf("tested: %q, not tested: %q", r.Attacks, r.NotTested)
		}
	}
}
