package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestInstancesShareABudget checks that three instances together allow what a single limit allows,
// and that the metrics count each request once, under the limit without its Resolution.
func TestInstancesShareABudget(t *testing.T) {
	to, reached := startOrigin(t)
	cfg := Config{To: to, Routes: []Route{limitedRoute("/", "50/1h@1m")}, Outage: httplimit.FailClosed, Timeout: testTimeout, Name: redistest.Key(t)}
	join := func() *instance {
		cfg.Redis = window.On(redistest.Client(t))
		return startInstance(t, cfg)
	}
	a, b, c := join(), join(), join()
	want := map[int]int{http.StatusOK: 50, http.StatusTooManyRequests: 550}
	if got := sendConcurrently(t, 200, a.url, b.url, c.url); !cmp.Equal(got, want) || reached.Load() != 50 {
		t.Errorf("%v; %d reached the server", got, reached.Load())
	}
	sum := 0
	for _, i := range []*instance{a, b, c} {
		yes, no := i.counted("/", allowed, byRedis), i.counted("/", denied, byRedis)
		if sum += yes; yes+no != 200 || int(testutil.ToFloat64(i.metrics.denials.WithLabelValues("/", "50/1h"))) != no {
			t.Errorf("an instance counts %d allowed and %d denied of 200", yes, no)
		}
	}
	if sum != 50 {
		t.Errorf("/metrics counts %d allowed", sum)
	}
}

// TestInMemoryEachHasItsOwn checks that two instances without Redis allow twice as many requests.
func TestInMemoryEachHasItsOwn(t *testing.T) {
	to, reached := startOrigin(t)
	cfg := Config{To: to, Routes: []Route{limitedRoute("/", "20/1h")}}
	a, b := startInstance(t, cfg), startInstance(t, cfg)
	if got := sendConcurrently(t, 50, a.url, b.url); got[http.StatusOK] != 40 || reached.Load() != 40 {
		t.Errorf("%v; %d reached the server", got, reached.Load())
	}
	if yes, no := a.counted("/", allowed, byMemory), a.counted("/", denied, byMemory); yes != 20 || no != 30 {
		t.Errorf("counted %d and %d", yes, no)
	}
}

// TestOutage checks that a response arrives in time whatever Redis does, that it is the one that
// Outage asks for, and that /metrics and /healthz report who decided.
func TestOutage(t *testing.T) {
	for _, tt := range []struct {
		outage       httplimit.Outage
		status       int // while Redis is out, for a client that has not used up its limits
		decision, by string
	}{
		{Local, http.StatusOK, allowed, byMemory},
		{httplimit.FailOpen, http.StatusOK, allowed, byNobody},
		{httplimit.FailClosed, http.StatusServiceUnavailable, refused, byNobody},
	} {
		t.Run(string(tt.outage), func(t *testing.T) {
			t.Parallel()
			const timeout = 2 * time.Second
			to, _ := startOrigin(t)
			s := redistest.Start(t)
			s.Kill(t)
			redis := window.Dial("redis://" + s.Addr())
			t.Cleanup(redis.Close)
			i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "1000000/1h")}, Redis: redis, Outage: tt.outage, Timeout: timeout})
			if got, counted := status(t, i.url), i.counted("/", tt.decision, tt.by); got != tt.status || counted != 1 || i.health(t).Redis != "connecting" {
				t.Errorf("before there is a Redis: %d, counted %d times, %v", got, counted, i.health(t))
			}
			i.wantRedis(t, 0, 1)
			if n := testutil.ToFloat64(i.metrics.undecided.WithLabelValues("/", "refused")); n != 1 {
				t.Errorf("before there is a Redis: it refused %v connections", n)
			}
			if text := read(t, i.admin+"/metrics"); redisAsked.MatchString(text) {
				t.Errorf("before there is a Redis, it answers: %s", text)
			}
			s.Restart(t)
			if err := redis.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if i.wantRedis(t, 1, 0); i.health(t) != (health{"ok", "up"}) {
				t.Errorf("after connecting: %v", i.health(t))
			}
			i.await(t, "the first decision by Redis", func() bool { return status(t, i.url) == 200 && i.counted("/", allowed, byRedis) > 0 })
			if i.health(t) != (health{"ok", "up"}) {
				t.Errorf("with Redis: %v", i.health(t))
			}
			s.Pause(t)
			before := i.counted("/", tt.decision, tt.by)
			control, longest := redistest.Timers(1, timeout), time.Duration(0)
			for range 50 {
				began := time.Now()
				if got := status(t, i.url); got != tt.status {
					t.Errorf("while Redis hangs: %d", got)
				}
				longest = max(longest, time.Since(began))
			}
			if limit := control.Limit(); longest > limit {
				t.Errorf("a request while Redis hangs took %v, more than %v", longest, limit)
			}
			if counted := i.counted("/", tt.decision, tt.by) - before; counted != 50 || i.health(t) != (health{"ok", "out"}) {
				t.Errorf("of 50 requests while Redis hung, %d are counted as %s by %s; %v", counted, tt.decision, tt.by, i.health(t))
			}
			i.wantRedis(t, 1, 1)
			if n := testutil.ToFloat64(i.metrics.undecided.WithLabelValues("/", "timeout")); n < 3 {
				t.Errorf("%v timeouts", n)
			}
			if past := i.history.newestFirst(); len(past) != 1 || past[0].Route != "/" || past[0].Ended != nil {
				t.Errorf("the page shows other outages: %+v", past)
			}
			s.Resume(t)
			before = i.counted("/", allowed, byRedis)
			i.await(t, "Redis to decide again", func() bool { return status(t, i.url) == 200 && i.counted("/", allowed, byRedis) > before })
			i.await(t, "the end of the only outage", func() bool {
				past := i.history.newestFirst()
				return len(past) == 1 && past[0].Ended != nil && !past[0].Ended.Before(past[0].Began)
			})
			if n := testutil.ToFloat64(i.metrics.outages.WithLabelValues("/")); n != 1 || i.health(t) != (health{"ok", "up"}) {
				t.Errorf("%v outages, %v", n, i.health(t))
			}
			i.wantRedis(t, 1, 0)
			if n := i.log.count("Redis does not answer"); n != 1 {
				t.Errorf("the log explains %d outages\n%s", n, i.log)
			}
		})
	}
}

// redisAsked matches a metric which shows that Redis was called for a request.
var redisAsked = regexp.MustCompile(`slidegate_redis_seconds_count\{.*\} [1-9]`)

// wantRedis checks what /metrics shows about the connection, and about outages of the route "/".
func (i *instance) wantRedis(tb testing.TB, connected, outages int) {
	tb.Helper()
	want, text := fmt.Sprintf("slidegate_outages{route=\"/\"} %d\n", outages), read(tb, i.admin+"/metrics")
	if !strings.Contains(text, want) || !strings.Contains(text, fmt.Sprintf("slidegate_redis_connected %d\n", connected)) {
		tb.Errorf("not connected %d and %s%s", connected, want, text)
	}
}

// TestTheLogSaysWhy checks that the log gives the cause of an outage once, and once the cause of
// decisions made in memory.
func TestTheLogSaysWhy(t *testing.T) {
	to, _ := startOrigin(t)
	s := redistest.Start(t)
	i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "2/1h")}, Redis: window.On(s.Client(t)), Outage: Local, Timeout: testTimeout})
	if err := s.Do(t.Context(), "ACL", "SETUSER", "default", "-evalsha").Error(); err != nil {
		t.Fatal(err)
	}
	sendConcurrently(t, 50, i.url)
	for text, want := range map[string]int{`level=ERROR msg="Redis does not answer" route=/ err="`: 1, "NOPERM": 2} {
		if got := i.log.count(text); got != want {
			t.Errorf("%q is logged %d times\n%s", text, got, i.log)
		}
	}
}

// TestTimeoutBoundsARequest checks that Timeout limits how long a request takes while Redis hangs.
func TestTimeoutBoundsARequest(t *testing.T) {
	to, _ := startOrigin(t)
	s := redistest.Start(t)
	i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "1000/1h")}, Redis: window.On(s.Client(t)), Outage: httplimit.FailOpen, Timeout: 20 * time.Millisecond})
	s.Pause(t)
	control, shortest := redistest.Timers(1, 20*time.Millisecond), testTimeout
	for range 3 {
		began := time.Now()
		status(t, i.url)
		shortest = min(shortest, time.Since(began))
	}
	s.Resume(t)
	if limit := control.Limit(); shortest > limit {
		t.Errorf("the shortest of three took %v, more than %v", shortest, limit)
	}
}

// TestHammeringCostsRedisNothing checks that after the first denials of an IP address the proxy no
// longer calls Redis for it.
func TestHammeringCostsRedisNothing(t *testing.T) {
	to, _ := startOrigin(t)
	s := redistest.Start(t)
	i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "1/1h")}, Redis: window.On(s.Client(t)), Outage: httplimit.FailClosed, Timeout: testTimeout})
	for range 100 {
		status(t, i.url)
	}
	stats, err := s.Do(t.Context(), "INFO", "commandstats").ToString()
	_, calls, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	calls, _, _ = strings.Cut(calls, ",")
	if n, wrong := strconv.Atoi(calls); err != nil || wrong != nil || n > 10 || i.counted("/", denied, byRedis) != 99 {
		t.Errorf("%s scripts ran for 100 requests, and %d were denied; %v", calls, i.counted("/", denied, byRedis), err)
	}
}

// TestForeignValue checks that if an event's key holds a foreign value, its requests are handled as
// in an outage, and the log has at most one line a second about it.
func TestForeignValue(t *testing.T) {
	for outage, want := range map[httplimit.Outage]map[int]int{Local: {200: 5, 429: 45}, httplimit.FailOpen: {200: 50}, httplimit.FailClosed: {503: 50}} {
		to, _ := startOrigin(t)
		s := redistest.Start(t)
		if err := s.Do(t.Context(), "SET", "proxy:{/%20127.0.0.1}:w", "something else").Error(); err != nil {
			t.Fatal(err)
		}
		i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "5/1h")}, Redis: window.On(s.Client(t)), Outage: outage, Timeout: testTimeout})
		began := time.Now()
		if got := sendConcurrently(t, 50, i.url); !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", outage, got, want)
		}
		if lines := i.log.count("memory decides on an event"); outage == Local && (lines < 1 || lines > 1+int(time.Since(began)/time.Second)) {
			t.Errorf("%d lines\n%s", lines, i.log)
		}
	}
}

// TestGone checks that a client that disconnected before the decision is counted as gone, for each
// Outage.
func TestGone(t *testing.T) {
	for _, outage := range []httplimit.Outage{Local, httplimit.FailOpen, httplimit.FailClosed} {
		to, reached := startOrigin(t)
		i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("/", "5/1h")}, Outage: outage})
		ctx, hangUp := context.WithCancel(t.Context())
		hangUp()
		i.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		if i.counted("/", gone, byNobody) != 1 || reached.Load() != 0 {
			t.Errorf("%s: %s", outage, read(t, i.admin+"/metrics"))
		}
	}
}

// TestEachRequestIsCountedOnce sends random requests. It checks that the metrics of all decisions
// add up to the number of requests, and agree with the statuses that clients got.
func TestEachRequestIsCountedOnce(t *testing.T) {
	to, reached := startOrigin(t)
	i := startInstance(t, Config{To: to, Routes: []Route{
		limitedRoute("/", "40/1h", "30/1m"),
		limitedRoute("POST /login", "5/1h"),
		{Pattern: "/key/", Limits: []window.Limit{window.PerHour(10)}, Key: httplimit.Header("X-Key")},
		{Pattern: "/free"},
	}})
	rnd, got := rand.New(rand.NewPCG(11, 2)), map[int]int{}
	for range 500 {
		req, err := http.NewRequestWithContext(t.Context(), pick(rnd, "GET", "POST"), i.url+pick(rnd, "/", "/login", "/key/1", "/free", "/a%2F..%2Ffree", "/x"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(pick(rnd, "X-Key", "X-Other"), pick(rnd, "one", "two"))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		got[res.StatusCode]++
	}
	counted := map[int]int{}
	for _, pattern := range []string{"/", "POST /login", "/key/", "/free", ""} {
		counted[http.StatusOK] += i.counted(pattern, allowed, byMemory) + i.counted(pattern, allowed, byNobody)
		counted[http.StatusTooManyRequests] += i.counted(pattern, denied, byMemory)
		counted[http.StatusBadRequest] += i.counted(pattern, noKey, byNobody) + i.counted(pattern, ambiguous, byNobody)
	}
	if diff := cmp.Diff(got, counted); diff != "" || len(got) != 3 || int(reached.Load()) != got[http.StatusOK] {
		t.Errorf("statuses and metrics (-got +counted):\n%s%d reached the server", diff, reached.Load())
	}
	if r := i.denied.Report(); int(r.Denied) != got[http.StatusTooManyRequests] {
		t.Errorf("/over reports %d denials of %d", r.Denied, got[http.StatusTooManyRequests])
	}
}

func pick(rnd *rand.Rand, from ...string) string { return from[rnd.IntN(len(from))] }

// TestSecretHidesWhoIsLimited checks that neither Redis nor /over, /metrics or the log contains a
// client's IP address or key.
func TestSecretHidesWhoIsLimited(t *testing.T) {
	to, _ := startOrigin(t)
	s := redistest.Start(t)
	i := startInstance(t, Config{To: to, Redis: window.On(s.Client(t)), Outage: httplimit.FailClosed, Timeout: testTimeout, Secret: []byte("0123456789abcdef"), Routes: []Route{
		limitedRoute("/", "1/1h"),
		{Pattern: "/key", Limits: []window.Limit{window.PerHour(1)}, Key: httplimit.Header("X-Key")},
	}})
	for range 3 {
		status(t, i.url)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, i.url+"/key", http.NoBody)
		req.Header.Set("X-Key", "hush-hush")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	keys, err := s.Do(t.Context(), "KEYS", "*").AsStrSlice()
	if err != nil || len(keys) != 2 {
		t.Fatalf("%q, %v", keys, err)
	}
	var over denials
	if err := json.Unmarshal([]byte(read(t, i.admin+"/over")), &over); err != nil || len(over.Most) != 2 {
		t.Fatalf("%+v, %v", over, err)
	}
	for _, e := range over.Most {
		if !strings.Contains(strings.Join(keys, " "), "{"+e.Event+"}") {
			t.Errorf("%s is not the tag of a key: %q", e.Event, keys)
		}
	}
	i.logDenials(0)
	if all := strings.Join(keys, " ") + read(t, i.admin+"/over") + read(t, i.admin+"/metrics") + i.log.String(); strings.Contains(all, "127.0.0.1 ") || strings.Contains(all, "/ 127") || strings.Contains(all, "hush") {
		t.Error(all)
	}
}

// TestOperatorPaths checks the responses on the operators' paths, and the log line about denials.
func TestOperatorPaths(t *testing.T) {
	to, _ := startOrigin(t)
	i := startInstance(t, Config{To: to, Routes: []Route{limitedRoute("POST /login", "1/5s", "5/1h"), limitedRoute("/", "2/1h@1m")}})
	for range 8 {
		status(t, i.url+"/some/path")
	}
	var over denials
	if err := json.Unmarshal([]byte(read(t, i.admin+"/over")), &over); err != nil || over.Denied != 6 || over.Events != 1 || len(over.Most) != 1 {
		t.Fatalf("%+v, %v", over, err)
	}
	most := over.Most[0]
	if most.Event != "/ 127.0.0.1" || most.Denied != 6 || most.Limit != "2/1h" || most.PerMinute < 0.1 || most.Until.Sub(most.Last) > time.Hour || most.Until.Sub(most.Since) < 59*time.Minute || most.Last.Before(most.Since) {
		t.Errorf("%+v", most)
	}
	if before := i.logDenials(0); before != 6 || i.logDenials(before) != 6 || i.log.count("requests were denied") != 1 ||
		!strings.Contains(i.log.String(), `denied=6 events=1 most="/ 127.0.0.1: 6 by 2/1h since `) {
		t.Error(i.log)
	}
	for path, want := range map[string]string{
		"/metrics": `slidegate_requests_total{by="memory",decision="denied",route="POST /login"} 0`, "/healthz": "{\n  \"status\": \"ok\",\n  \"redis\": \"none\"\n}\n",
	} {
		if got := read(t, i.admin+path); !strings.Contains(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	if faults, err := testutil.GatherAndLint(i.metrics.registry); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
}
