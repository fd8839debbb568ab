package httplimit_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestShardOut checks that if requests on one shard of a cluster fail while others succeed, the log
// has only one line, and a second line once no request has failed for five seconds.
func TestShardOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		var s stubLimiter
		h := middleware(httplimit.Config{Limiter: &s, Outage: httplimit.FailOpen, Log: log.logger()}).Wrap(fine)
		s.Allowed = true
		ask(h)
		check := func(when, want string) {
			t.Helper()
			if log.String() != want {
				t.Errorf("%s:\n%s", when, &log)
			}
		}
		for range 100 {
			for _, s.err = range []error{nil, window.ErrOutage, nil, window.ErrUncertain} {
				ask(h)
			}
			<-time.After(time.Second)
		}
		check("in the outage", lineOutage)
		s.err = nil
		ask(h)
		check("a second after", lineOutage)
		<-time.After(4 * time.Second)
		ask(h)
		check("five seconds after", lineOutage+lineRecovered)
		ask(h)
		check("later", lineOutage+lineRecovered)
	})
}

// TestFallbackStates checks the log when the Fallback takes over, fails, takes over again, and is
// no longer needed.
func TestFallbackStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		var s stubLimiter
		h := middleware(httplimit.Config{Limiter: &s, Log: log.logger()}).Wrap(fine)
		s.Allowed = true
		for _, of := range []struct {
			degraded bool
			err      error
		}{{false, nil}, {true, nil}, {true, nil}, {false, window.ErrOutage}, {true, nil}, {false, nil}, {false, nil}} {
			s.Degraded, s.err = of.degraded, of.err
			ask(h)
			ask(h)
			<-time.After(6 * time.Second)
		}
		if want := lineDegraded + lineOutage + lineDegraded + lineRecovered; log.String() != want {
			t.Errorf("not\n%sbut\n%s", want, &log)
		}
	})
}

// TestSecretStaysSecret checks that with a Secret, the log never contains the key of a request.
func TestSecretStaysSecret(t *testing.T) {
	s := redistest.Start(t)
	l := must(window.New(window.On(s.Client(t)), window.Config{Name: redistest.Key(t), Limits: limits("1/1h"), Secret: []byte("0123456789abcdef"), Timeout: time.Minute}))
	var log logBuffer
	h := middleware(httplimit.Config{Limiter: l, Key: httplimit.Header("X-Api-Key"), Log: log.loggerOf("err", "msg")}).Wrap(fine)
	with := func(r *http.Request) { r.Header.Set("X-Api-Key", "hunter2") }
	if w := ask(h, with); w.Code != http.StatusOK {
		t.Error(w.Code)
	}
	if err := s.Do(t.Context(), "SET", must(l.Inspect(t.Context(), "header X-Api-Key hunter2")).Key, "foreign").Error(); err != nil {
		t.Fatal(err)
	}
	if w := ask(h, with); w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
	s.Kill(t)
	h = middleware(httplimit.Config{Limiter: l, Key: httplimit.Header("X-Api-Key"), Log: log.loggerOf("err", "msg")}).Wrap(fine)
	if w := ask(h, with); w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
	if text := log.String(); strings.Contains(text, "hunter2") || strings.Count(text, "\n") != 2 {
		t.Errorf("%s", text)
	}
}
