package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

var ready = regexp.MustCompile(`msg=ready listen=(\S+) .*admin=(\S+)`)

// load represents the result of many concurrent requests.
type load struct {
	mu       sync.Mutex
	statuses map[int]int // 0 means that the proxy did not respond
}

// drive sends requests to the URLs in rotation, on many connections, until next returns false.
func drive(next func() bool, urls ...string) *load {
	l := &load{statuses: map[int]int{}}
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	defer transport.CloseIdleConnections()
	var sent atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for next() {
				l.send(transport, urls[int(sent.Add(1))%len(urls)])
			}
		})
	}
	all.Wait()
	return l
}

func (l *load) send(transport *http.Transport, url string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		panic(err)
	}
	status := 0
	if res, err := transport.RoundTrip(req); err == nil {
		status = res.StatusCode
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.statuses[status]++
}

// relay returns a fixed address for a Redis server whose own address changes when it restarts.
func relay(t *testing.T, s *redistest.Server) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", s.Addr())
			if err != nil {
				in.Close()
				continue
			}
			go pass(in, out)
			go pass(out, in)
		}
	}()
	return l.Addr().String()
}

func pass(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	from.Close()
	to.Close()
}

// TestProxies runs the program in several scenarios.
func TestProxies(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs five histories of proxies")
	}
	t.Parallel()
	program := os.Args[0]
	for name, test := range map[string]func(*testing.T, string){
		"two share one budget": testTwoShareOneBudget, "one is killed": testOneIsKilled,
		"Redis is killed and comes back": testRedisIsKilled, "Redis comes later": testRedisComesLater, "soak": testSoak,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, program)
		})
	}
}

// testTwoShareOneBudget checks that two programs on one Redis, under load, allow exactly the
// budget, and that their metrics agree with what clients and the server counted.
func testTwoShareOneBudget(t *testing.T, program string) {
	s := startServer(t)
	args := []string{"--to", s.URL, "--limit", "100/200ms,500/1h", "--redis", redistest.Addr(t), "--name", redistest.Key(t), "--timeout", "1m", "--outage", "closed"}
	a, b := startProxy(t, program, args...), startProxy(t, program, args...)
	more, late := times(3000), time.Now().Add(time.Minute)
	got := drive(func() bool { return time.Now().Before(late) && (s.count() < 500 || more()) }, a.url, b.url)
	if s.count() != 500 || got.statuses[200] != 500 || len(got.statuses) != 2 {
		t.Errorf("%d reached the server; clients got %v", s.count(), got.statuses)
	}
	reported := a.requests(t)
	for status, n := range b.requests(t) {
		reported[status] += n
	}
	if diff := cmp.Diff(got.statuses, reported); diff != "" {
		t.Errorf("clients and metrics (-clients +metrics):\n%s", diff)
	}
}

// testOneIsKilled checks that the counts of a killed program remain in force, and that the other
// program continues.
func testOneIsKilled(t *testing.T, program string) {
	s := startServer(t)
	args := []string{"--to", s.URL, "--limit", "2000/1h", "--redis", redistest.Addr(t), "--name", redistest.Key(t), "--timeout", "1m", "--outage", "closed"}
	a, b := startProxy(t, program, args...), startProxy(t, program, args...)
	kill := sync.OnceFunc(func() { _ = a.Process.Kill(); _ = a.Wait() })
	left := times(6000)
	got := drive(func() bool {
		if s.count() >= 500 {
			kill()
		}
		return left() && s.count() < 2000
	}, a.url, b.url)
	rest := drive(times(3000), b.url)
	charged, reached := 2000, s.count()
	if lost := charged - reached; lost < 0 || lost > 32 || rest.statuses[0] != 0 || got.statuses[0] == 0 {
		t.Errorf("%d of %d reached the server; clients got %v, then %v", reached, charged, got.statuses, rest.statuses)
	}
	if over := drive(times(10), b.url); over.statuses[429] != 10 {
		t.Errorf("afterwards: %v", over.statuses)
	}
	t.Logf("%d of 2000 reached the server, clients got %v", reached, got.statuses)
}

// testRedisIsKilled checks that no request hangs, that each is answered as --outage says, and that
// the metrics count those on which memory decided.
func testRedisIsKilled(t *testing.T, program string) {
	s, redis := startServer(t), redistest.Start(t)
	p := startProxy(t, program, "--to", s.URL, "--limit", "1000000/1h", "--redis", relay(t, redis), "--timeout", "1m")
	const byRedis, byMemory = `slidegate_requests_total\{by="redis",.*`, `slidegate_requests_total\{by="memory",.*`
	all := []*load{drive(times(500), p.url)}
	if n := p.metric(t, byRedis); n != 500 {
		t.Errorf("with Redis: the metrics count %d of 500 as decided by it", n)
	}
	redis.Kill(t)
	all = append(all, drive(times(2000), p.url))
	if n := p.metric(t, byMemory); n != 2000 || p.metric(t, `slidegate_outages\{.*`) != 1 {
		t.Errorf("without Redis: the metrics count %d of 2000 as decided in memory, and %d outages", n, p.metric(t, `slidegate_outages\{.*`))
	}
	redis.Restart(t)
	outage, again := p.logs(t, ""), make(chan struct{})
	go func() {
		defer close(again)
		p.logs(t, "decides again")
	}()
	if !strings.Contains(outage, "Fallback decides") {
		t.Error(outage)
	}
	all = append(all, drive(until(again), p.url))
	got := map[int]int{}
	for _, l := range all {
		for status, n := range l.statuses {
			got[status] += n
		}
	}
	if diff := cmp.Diff(got, p.requests(t)); diff != "" || len(got) != 1 || got[200] != s.count() || p.metric(t, `slidegate_outages\{.*`) != 0 || p.metric(t, `slidegate_outages_total\{.*`) != 1 {
		t.Errorf("%d reached the server; clients and metrics (-clients +metrics):\n%s", s.count(), diff)
	}
	t.Log(got)
}

// testRedisComesLater checks that a proxy that starts while Redis is down decides in memory and
// reports an outage, and that it shares its budgets once Redis is up.
func testRedisComesLater(t *testing.T, program string) {
	s, redis := startServer(t), redistest.Start(t)
	redis.Kill(t)
	p := startProxy(t, program, "--to", s.URL, "--limit", "1000000/1h", "--redis", relay(t, redis), "--timeout", "1m")
	const byRedis, outages = `slidegate_requests_total\{by="redis",.*`, `slidegate_outages\{.*`
	if got := drive(times(50), p.url); got.statuses[200] != 50 || p.metric(t, byRedis) != 0 || p.metric(t, outages) != 1 {
		t.Errorf("without Redis: %v, %d by Redis, %d outages", got.statuses, p.metric(t, byRedis), p.metric(t, outages))
	}
	redis.Restart(t)
	p.logs(t, `msg="budgets are shared"`)
	for began := time.Now(); p.metric(t, byRedis) == 0 || p.metric(t, outages) != 0; {
		if drive(times(10), p.url); time.Since(began) > time.Minute {
			t.Fatal("Redis never decides")
		}
	}
}
