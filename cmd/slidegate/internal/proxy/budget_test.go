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
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// pending is a Connection that waits for a client from join.
type pending struct {
	*window.Connection
	clients chan rueidis.Client
}

func newPending(tb testing.TB) *pending {
	clients := make(chan rueidis.Client)
	p := &pending{window.Connect(func(ctx context.Context) (rueidis.Client, error) {
		select {
		case c := <-clients:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}), clients}
	tb.Cleanup(func() {
		if p.Wait(ended) != nil { // else the owner of the client closes it
			p.Close()
		}
	})
	return p
}

// join connects to the Redis of a client.
func (p *pending) join(tb testing.TB, client rueidis.Client) {
	tb.Helper()
	p.clients <- client
	ctx, cancel := context.WithTimeout(tb.Context(), long)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		tb.Fatal(err)
	}
}

// connectedTo returns a Connection that has a client.
func connectedTo(tb testing.TB, client rueidis.Client) *window.Connection {
	tb.Helper()
	p := newPending(tb)
	p.join(tb, client)
	return p.Connection
}

// TestInstancesShareABudget: three instances admit what one limit admits, and each request is told of once.
func TestInstancesShareABudget(t *testing.T) {
	to, reached := origin(t)
	cfg := Config{To: to, Routes: []Route{limited("/", "50/1h")}, Outage: Closed, Timeout: long, Name: redistest.Key(t)}
	join := func() *instance {
		cfg.Redis = connectedTo(t, redistest.Client(t))
		return listen(t, cfg)
	}
	a, b, c := join(), join(), join()
	want := map[int]int{http.StatusOK: 50, http.StatusTooManyRequests: 550}
	if got := crowd(t, 200, a.url, b.url, c.url); !cmp.Equal(got, want) || reached.Load() != 50 {
		t.Errorf("%v; %d reached the server", got, reached.Load())
	}
	sum := 0
	for _, i := range []*instance{a, b, c} {
		yes, no := i.counted("/", admitted, byRedis), i.counted("/", denied, byRedis)
		if sum += yes; yes+no != 200 || int(testutil.ToFloat64(i.metrics.denials.WithLabelValues("/", "50/1h"))) != no {
			t.Errorf("an instance tells of %d admitted and %d denied of 200", yes, no)
		}
	}
	if sum != 50 {
		t.Errorf("/metrics tell of %d admitted", sum)
	}
}

// TestInMemoryEachHasItsOwn: without Redis two instances admit twice as much.
func TestInMemoryEachHasItsOwn(t *testing.T) {
	to, reached := origin(t)
	cfg := Config{To: to, Routes: []Route{limited("/", "20/1h")}}
	a, b := listen(t, cfg), listen(t, cfg)
	if got := crowd(t, 50, a.url, b.url); got[http.StatusOK] != 40 || reached.Load() != 40 {
		t.Errorf("%v; %d reached the server", got, reached.Load())
	}
	if yes, no := a.counted("/", admitted, byMemory), a.counted("/", denied, byMemory); yes != 20 || no != 30 {
		t.Errorf("told of %d and %d", yes, no)
	}
}

// TestOutage: whatever Redis does, an answer comes in time, it is what Outage says, and /metrics and /healthz tell who decided.
func TestOutage(t *testing.T) {
	for _, tt := range []struct {
		outage       Outage
		status       int // while Redis is out, of a client that has not used up its limits
		decision, by string
		explained    int // lines of the log that say why memory decides
	}{
		{Local, http.StatusOK, admitted, byMemory, 1},
		{Open, http.StatusOK, admitted, byNobody, 0},
		{Closed, http.StatusServiceUnavailable, refused, byNobody, 0},
	} {
		t.Run(string(tt.outage), func(t *testing.T) {
			t.Parallel()
			to, _ := origin(t)
			s := redistest.Start(t)
			redis := newPending(t)
			i := listen(t, Config{To: to, Routes: []Route{limited("/", "1000000/1h")}, Redis: redis.Connection, Outage: tt.outage, Timeout: 300 * time.Millisecond})
			if got, told := status(t, i.url), i.counted("/", tt.decision, tt.by); got != tt.status || told != 1 || i.health(t).Redis != "connecting" {
				t.Errorf("before there is a Redis: %d, told of %d times, %v", got, told, i.health(t))
			}
			i.wantRedis(t, 0, 1)
			if text := read(t, i.admin+"/metrics"); redisAsked.MatchString(text) {
				t.Errorf("before there is a Redis, it answers: %s", text)
			}
			redis.join(t, s.Client(t))
			if i.wantRedis(t, 1, 0); i.health(t) != (health{"ok", "up"}) {
				t.Errorf("after connecting: %v", i.health(t))
			}
			i.await(t, "the first decision by Redis", func() bool { return status(t, i.url) == 200 && i.counted("/", admitted, byRedis) > 0 })
			if i.health(t) != (health{"ok", "up"}) {
				t.Errorf("with Redis: %v", i.health(t))
			}
			s.Pause(t)
			before := i.counted("/", tt.decision, tt.by)
			for range 50 {
				within(t, 300*time.Millisecond+long/4, "a request while Redis hangs", func() {
					if got := status(t, i.url); got != tt.status {
						t.Errorf("while Redis hangs: %d", got)
					}
				})
			}
			if told := i.counted("/", tt.decision, tt.by) - before; told != 50 || i.health(t) != (health{"ok", "out"}) {
				t.Errorf("of 50 requests while Redis hung %d are told of as %s by %s; %v", told, tt.decision, tt.by, i.health(t))
			}
			i.wantRedis(t, 1, 1)
			if past := i.history.newestFirst(); len(past) != 1 || past[0].Route != "/" || past[0].Ended != nil {
				t.Errorf("the page shows other outages: %+v", past)
			}
			s.Resume(t)
			before = i.counted("/", admitted, byRedis)
			i.await(t, "Redis to decide again", func() bool { return status(t, i.url) == 200 && i.counted("/", admitted, byRedis) > before })
			if n := testutil.ToFloat64(i.metrics.outages.WithLabelValues("/")); n != 1 || i.health(t) != (health{"ok", "up"}) {
				t.Errorf("%v outages, %v", n, i.health(t))
			}
			i.wantRedis(t, 1, 0)
			if past := i.history.newestFirst(); len(past) != 1 || past[0].Ended == nil || past[0].Ended.Before(past[0].Began) {
				t.Errorf("the page shows other outages afterwards: %+v", past)
			}
			if n := i.log.count("Redis does not answer"); n != tt.explained {
				t.Errorf("the log explains %d outages, not %d\n%s", n, tt.explained, i.log)
			}
		})
	}
}

// redisAsked matches a metric of a request that asked Redis.
var redisAsked = regexp.MustCompile(`slidegate_redis_seconds_count\{.*\} [1-9]`)

// wantRedis checks what /metrics show of the connection and of outages of the route "/".
func (i *instance) wantRedis(tb testing.TB, connected, outages int) {
	tb.Helper()
	want, text := fmt.Sprintf("slidegate_outages{route=\"/\"} %d\n", outages), read(tb, i.admin+"/metrics")
	if !strings.Contains(text, want) || !strings.Contains(text, fmt.Sprintf("slidegate_redis_connected %d\n", connected)) {
		tb.Errorf("not connected %d and %s%s", connected, want, text)
	}
}

func (i *instance) health(tb testing.TB) (h health) {
	tb.Helper()
	if err := json.Unmarshal([]byte(read(tb, i.admin+"/healthz")), &h); err != nil {
		tb.Fatal(err)
	}
	return h
}

// await asks until it is so.
func (i *instance) await(tb testing.TB, what string, so func() bool) {
	tb.Helper()
	for began := time.Now(); !so(); {
		if time.Since(began) > long {
			tb.Fatalf("waited %v for %s\n%s", long, what, i.log)
		}
	}
}

// TestTheLogSaysWhy memory decides, once for an outage; and that Redis is asked about every denial, where it does not tell of changes.
func TestTheLogSaysWhy(t *testing.T) {
	to, _ := origin(t)
	s := redistest.Start(t)
	conn := connectedTo(t, s.NewClient(t, func(o *rueidis.ClientOption) { o.DisableCache = true }))
	i := listen(t, Config{To: to, Routes: []Route{limited("/", "2/1h")}, Redis: conn, Outage: Local, Timeout: long})
	i.await(t, "the limiter to give up the cache", func() bool { return status(t, i.url) != 0 && strings.Contains(i.log.String(), "about every denial") })
	if err := s.Do(t.Context(), "ACL", "SETUSER", "default", "-evalsha").Error(); err != nil {
		t.Fatal(err)
	}
	crowd(t, 50, i.url)
	for text, want := range map[string]int{`level=ERROR msg="Redis does not answer" route=/ err="`: 1, "NOPERM": 1, "Redis is asked about every denial": 1} {
		if got := i.log.count(text); got != want {
			t.Errorf("%q is told %d times\n%s", text, got, i.log)
		}
	}
}

// TestTimeoutBoundsARequest: of the first three that a Redis leaves hanging, one at least takes less than the second that a limiter has by default.
func TestTimeoutBoundsARequest(t *testing.T) {
	to, _ := origin(t)
	s := redistest.Start(t)
	i := listen(t, Config{To: to, Routes: []Route{limited("/", "1000/1h")}, Redis: connectedTo(t, s.Client(t)), Outage: Open, Timeout: 20 * time.Millisecond})
	s.Pause(t)
	shortest := long
	for range 3 {
		began := time.Now()
		status(t, i.url)
		shortest = min(shortest, time.Since(began))
	}
	s.Resume(t)
	if shortest > 900*time.Millisecond {
		t.Errorf("the shortest of three took %v", shortest)
	}
}

// TestHammeringCostsRedisNothing: after the first denials of an address, Redis is not asked.
func TestHammeringCostsRedisNothing(t *testing.T) {
	to, _ := origin(t)
	s := redistest.Start(t)
	i := listen(t, Config{To: to, Routes: []Route{limited("/", "1/1h")}, Redis: connectedTo(t, s.Client(t)), Outage: Closed, Timeout: long})
	for range 100 {
		status(t, i.url)
	}
	stats, err := s.Do(t.Context(), "INFO", "commandstats").ToString()
	_, calls, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	calls, _, _ = strings.Cut(calls, ",")
	if n, wrong := strconv.Atoi(calls); err != nil || wrong != nil || n > 10 || i.counted("/", denied, byRedis) != 99 {
		t.Errorf("%s scripts ran for 100 requests, of which %d were denied; %v", calls, i.counted("/", denied, byRedis), err)
	}
}

// TestForeignValue: where the key of an event holds something else, Redis cannot decide about it, and what Outage says becomes of its requests. One a second is told of.
func TestForeignValue(t *testing.T) {
	for outage, want := range map[Outage]map[int]int{Local: {200: 5, 429: 45}, Open: {200: 50}, Closed: {503: 50}} {
		to, _ := origin(t)
		s := redistest.Start(t)
		if err := s.Do(t.Context(), "SET", "proxy:{/%20127.0.0.1}:w", "something else").Error(); err != nil {
			t.Fatal(err)
		}
		i := listen(t, Config{To: to, Routes: []Route{limited("/", "5/1h")}, Redis: connectedTo(t, s.Client(t)), Outage: outage, Timeout: long})
		began := time.Now()
		if got := crowd(t, 50, i.url); !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", outage, got, want)
		}
		if lines := i.log.count("memory decides about an event"); outage == Local && (lines < 1 || lines > 1+int(time.Since(began)/time.Second)) {
			t.Errorf("%d lines\n%s", lines, i.log)
		}
	}
}

// TestGone: a client that has hung up before there is a decision is counted as gone, whatever Outage says.
func TestGone(t *testing.T) {
	for _, outage := range []Outage{Local, Open, Closed} {
		to, reached := origin(t)
		i := listen(t, Config{To: to, Routes: []Route{limited("/", "5/1h")}, Outage: outage})
		ctx, hangUp := context.WithCancel(t.Context())
		hangUp()
		i.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		if i.counted("/", gone, byNobody) != 1 || reached.Load() != 0 {
			t.Errorf("%s: %s", outage, read(t, i.admin+"/metrics"))
		}
	}
}

// TestEachRequestIsToldOfOnce: of random requests, the metrics of all decisions add up to what was sent, and to the statuses that clients got.
func TestEachRequestIsToldOfOnce(t *testing.T) {
	to, reached := origin(t)
	i := listen(t, Config{To: to, Routes: []Route{
		limited("/", "40/1h", "30/1m"),
		limited("POST /login", "5/1h"),
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
	told := map[int]int{}
	for _, pattern := range []string{"/", "POST /login", "/key/", "/free", ""} {
		told[http.StatusOK] += i.counted(pattern, admitted, byMemory) + i.counted(pattern, admitted, byNobody)
		told[http.StatusTooManyRequests] += i.counted(pattern, denied, byMemory)
		told[http.StatusBadRequest] += i.counted(pattern, keyless, byNobody) + i.counted(pattern, ambiguous, byNobody)
	}
	if diff := cmp.Diff(got, told); diff != "" || len(got) != 3 || int(reached.Load()) != got[http.StatusOK] {
		t.Errorf("statuses and what is told of (-got +told):\n%s%d reached the server", diff, reached.Load())
	}
	if _, total, _ := i.over.most(); int(total) != got[http.StatusTooManyRequests] {
		t.Errorf("/over tells of %d denials of %d", total, got[http.StatusTooManyRequests])
	}
}

func pick(rnd *rand.Rand, from ...string) string { return from[rnd.IntN(len(from))] }

// TestSecretHidesWhoIsLimited: neither Redis nor anything that is told has the address or the key.
func TestSecretHidesWhoIsLimited(t *testing.T) {
	to, _ := origin(t)
	s := redistest.Start(t)
	i := listen(t, Config{To: to, Redis: connectedTo(t, s.Client(t)), Outage: Closed, Timeout: long, Secret: []byte("0123456789abcdef"), Routes: []Route{
		limited("/", "1/1h"),
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
	i.tellDenials(0, time.Now())
	if all := strings.Join(keys, " ") + read(t, i.admin+"/over") + read(t, i.admin+"/metrics") + i.log.String(); strings.Contains(all, "127.0.0.1 ") || strings.Contains(all, "/ 127") || strings.Contains(all, "hush") {
		t.Error(all)
	}
}

// TestWhatIsTold has the answers of the paths for operators, and the line in the log.
func TestWhatIsTold(t *testing.T) {
	to, _ := origin(t)
	i := listen(t, Config{To: to, Routes: []Route{limited("POST /login", "1/5s", "5/1h"), limited("/", "2/1h")}})
	for range 8 {
		status(t, i.url+"/some/path")
	}
	var over denials
	if err := json.Unmarshal([]byte(read(t, i.admin+"/over")), &over); err != nil || over.Denied != 6 || over.Events != 1 || len(over.Most) != 1 {
		t.Fatalf("%+v, %v", over, err)
	}
	most := over.Most[0]
	if most.Event != "/ 127.0.0.1" || most.Denied != 6 || most.Limit != "2/1h" || most.Times != 3 || most.RetryAfter < 3590 || most.RetryAfter > 3600 || most.Last.Before(most.Since) {
		t.Errorf("%+v", most)
	}
	if before := i.tellDenials(0, time.Now()); before != 6 || i.tellDenials(before, time.Now()) != 6 || i.log.count("requests were denied") != 1 ||
		!strings.Contains(i.log.String(), `denied=6 events=1 most="/ 127.0.0.1: 6 since `) || !strings.Contains(i.log.String(), `, 3.0 times 2/1h"`) {
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
