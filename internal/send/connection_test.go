package send

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// dialled is the result of a dial in these tests.
type dialled struct {
	client rueidis.Client
	err    error
}

// dialling returns a line on a Connection whose dials return the results that the test sends on the
// channel.
func dialling(t *testing.T) (*line, chan<- dialled) {
	results := make(chan dialled)
	conn := connection.Dial(func(context.Context) (rueidis.Client, error) {
		r := <-results
		return r.client, r.err
	})
	l := &line{log: &reportLog{}}
	l.Pipeline = New(conn, "test", l.log.recorder())
	t.Cleanup(conn.Close)
	return l, results
}

// connecting is a call of Connected in its own goroutine.
type connecting struct {
	left time.Duration
	err  error
	took time.Duration
	over bool
}

func connect(ctx context.Context, l *line, timeout time.Duration) *connecting {
	c, began := &connecting{}, time.Now()
	go func() {
		c.left, c.err = l.AwaitClient(ctx, timeout)
		c.took, c.over = time.Since(began), true
	}()
	synctest.Wait()
	return c
}

// TestFirstDial checks that calls wait for the first dial, and then have what is left of their
// timeout. If the dial fails, they get an error, and later calls get it immediately.
func TestFirstDial(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l, results := dialling(t)
		waits, patient := connect(t.Context(), l, time.Second), connect(t.Context(), l, -1)
		servertest.Pass(300 * time.Millisecond)
		results <- dialled{client: s.Client(t)}
		synctest.Wait()
		if *waits != (connecting{left: 700 * time.Millisecond, took: 300 * time.Millisecond, over: true}) || patient.left != -1 || !patient.over {
			t.Errorf("%+v, %+v", waits, patient)
		}
		wantEqual(t, "reports", l.log.read(), nil)
	})
	for what, fail := range map[string]func(chan<- dialled){
		"a failure": func(results chan<- dialled) { results <- dialled{err: errors.New("refused")} },
		"a timeout": func(chan<- dialled) { servertest.Pass(time.Second) },
		"no client": func(results chan<- dialled) { results <- dialled{} },
	} {
		servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
			l, results := dialling(t)
			first := connect(t.Context(), l, time.Second)
			fail(results)
			synctest.Wait()
			later := connect(t.Context(), l, time.Second)
			for _, c := range []*connecting{first, later} {
				if !errors.Is(c.err, health.ErrOutage) || !strings.Contains(c.err.Error(), "no connection yet") {
					t.Errorf("after %s: %+v", what, c)
				}
			}
			if later.took != 0 {
				t.Errorf("after %s: %+v", what, later)
			}
			results <- dialled{client: s.Client(t)} // the result of the next dial, or of the first if that is still running
			synctest.Wait()
			if c := connect(t.Context(), l, time.Second); c.err != nil || len(l.log.read()) != 2 {
				t.Errorf("after %s: %+v", what, c)
			}
		})
	}
}

// TestDeadlineInTheFirstDial checks that a caller whose deadline comes early gives up, unless the
// first dial has lasted for the timeout: then there is an outage, and nobody waits.
func TestDeadlineInTheFirstDial(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, _ *servertest.Server) {
		l, results := dialling(t)
		for _, test := range []struct {
			name string
			took time.Duration
			err  error
		}{{"early", 300 * time.Millisecond, health.ErrLeft}, {"in time", 100 * time.Millisecond, health.ErrOutage}, {"later", 0, health.ErrOutage}} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			got := connect(ctx, l, 400*time.Millisecond)
			servertest.Pass(test.took)
			synctest.Wait()
			wantEqual(t, test.name+": took", got.took, test.took)
			wantError(t, test.name, got.err, test.err)
			cancel()
		}
		wantEqual(t, "reports", l.log.read(), []string{"400ms: outage began"})
		results <- dialled{err: errors.New("refused")}
	})
}

// TestLeaveTheFirstDial checks that a caller whose context is canceled during the first dial gets
// the context's error, and that this is not an outage.
func TestLeaveTheFirstDial(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, _ *servertest.Server) {
		l, results := dialling(t)
		ctx, cancel := context.WithCancel(t.Context())
		c := connect(ctx, l, time.Second)
		cancel()
		synctest.Wait()
		wantError(t, "a caller that left", c.err, context.Canceled)
		wantError(t, "a caller that left", c.err, health.ErrLeft)
		wantEqual(t, "reports", l.log.read(), nil)
		results <- dialled{err: errors.New("refused")}
	})
}

// TestDialError checks that the errors of calls and of Wait quote the error of a failed dial, that
// they do not match its context error, and that errors.As finds its type.
func TestDialError(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, _ *servertest.Server) {
		l, results := dialling(t)
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := l.office.conn.Wait(short); err == nil || err.Error() != "slidegate: context deadline exceeded: there is no connection yet" {
			t.Error(err)
		}
		results <- dialled{err: &net.OpError{Op: "dial", Err: context.DeadlineExceeded}}
		c := connect(t.Context(), l, time.Second)
		if errors.Is(c.err, context.DeadlineExceeded) || !errors.As(c.err, new(*net.OpError)) || !strings.Contains(c.err.Error(), "dial: context deadline exceeded") {
			t.Error(c.err)
		}
		results <- dialled{err: errors.New("DB index is out of range")}
		synctest.Wait()
		if err := l.office.conn.Wait(short); err == nil || !strings.HasSuffix(err.Error(), ": DB index is out of range; choose a database that this Redis has, such as 0") {
			t.Error(err)
		}
	})
}

// TestCloseWhileDialling checks that Close ends Wait and the wait for the first dial, that a client
// that a dial returns after Close is closed, and that there is no further dial.
func TestCloseWhileDialling(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l, results := dialling(t)
		c, waited := connect(t.Context(), l, time.Minute), make(chan error, 1)
		go func() { waited <- l.office.conn.Wait(context.Background()) }()
		synctest.Wait()
		l.office.conn.Close()
		l.office.conn.Close()
		synctest.Wait()
		if !errors.Is(c.err, health.ErrOutage) || !strings.HasSuffix(c.err.Error(), "cannot answer: the Connection is closed; close it after its last use") {
			t.Errorf("%+v", c)
		}
		if err := <-waited; err == nil || err.Error() != "slidegate: the Connection is closed; close it after its last use" {
			t.Error(err)
		}
		late := s.Client(t)
		results <- dialled{client: late}
		servertest.Pass(time.Minute)
		if err := late.Do(t.Context(), late.B().Ping().Build()).Error(); !errors.Is(err, rueidis.ErrClosing) {
			t.Error(err)
		}
	})
}

// TestCallAfterClose checks that after Close, calls fail immediately with ErrOutage, and that the
// error states the reason even when the circuit breaker is open.
func TestCallAfterClose(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l, results := dialling(t)
		l.Timeout, l.script = time.Second, servertest.Script
		results <- dialled{client: s.Client(t)}
		synctest.Wait()
		l.office.conn.Close()
		for range 3 + 1 {
			c := askOne(t, l, "e")
			wantError(t, "closed", c.err, health.ErrOutage)
			if c.took != 0 || !strings.HasSuffix(c.err.Error(), "the Connection is closed; close it after its last use") {
				t.Errorf("after %v: %v", c.took, c.err)
			}
		}
	})
}
