package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

var soak = flag.Duration("soak", 6*time.Second, "how long TestProxies/soak runs")

// testSoak checks that the program's memory use and its number of goroutines do not grow over time.
// 100,000 clients send requests; some of them keep retrying, some disconnect, and Redis
// occasionally hangs. To run it for ten minutes:
//
//	go test ./cmd/slidegate -run Proxies/soak -v -soak 10m -timeout 20m
func testSoak(t *testing.T, program string) {
	s, redis := startServer(t), redistest.Start(t)
	p := startProxy(t, program, "--to", s.URL, "--limit", "3/2s,10/10s", "--by", "header:X-Client", "--redis", redis.Addr(), "--timeout", "50ms")
	end := make(chan struct{})
	var all sync.WaitGroup
	for i := range uint64(16) {
		all.Go(func() { sendMixed(p.url, rand.New(rand.NewPCG(i, 3)), until(end)) })
	}
	const rounds = 12
	var readings []reading
	for i := range rounds {
		if i%3 == 1 {
			redis.Pause(t)
		}
		sleep(t, *soak/rounds/2)
		if i%3 == 1 {
			redis.Resume(t)
		}
		sleep(t, *soak/rounds/2)
		readings = append(readings, p.reading(t))
		t.Log(readings[i])
	}
	close(end)
	all.Wait()
	middle, last := readings[rounds/3:2*rounds/3], readings[2*rounds/3:]
	if before, after := median(middle, reading.live), median(last, reading.live); after > before*5/4+4<<20 {
		t.Errorf("%d bytes of heap live in the second third of the time, %d in the last", before, after)
	}
	if before, after := median(middle, reading.routines), median(last, reading.routines); after > before*5/4+20 {
		t.Errorf("%d goroutines in the second third of the time, %d in the last", before, after)
	}
	if sum := p.metric(t, `slidegate_requests_total\{.*`); sum == 0 {
		t.Error("no requests")
	}
}

// sleep waits for d. It returns early if the test ends.
func sleep(t *testing.T, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("interrupted")
	}
}

// sendMixed sends requests from many clients. One request in three comes from ten clients that keep
// retrying, and the client of one in five disconnects.
func sendMixed(url string, rnd *rand.Rand, more func() bool) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for more() {
		client := fmt.Sprint(rnd.IntN(100_000))
		if rnd.IntN(3) == 0 {
			client = fmt.Sprint(rnd.IntN(10))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if rnd.IntN(5) == 0 {
			time.AfterFunc(time.Duration(rnd.IntN(2000))*time.Microsecond, cancel)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			panic(err)
		}
		req.Header.Set("X-Client", client)
		if res, err := transport.RoundTrip(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		cancel()
	}
}

// reading represents the program's resource use at a point in time.
type reading struct{ heap, resident, goroutines, requests, denied, memory int }

func (s reading) live() int     { return s.heap }
func (s reading) routines() int { return s.goroutines }

func (s reading) String() string {
	return fmt.Sprintf("%.1f MB of heap live, %.1f MB resident, %d goroutines, %d requests (%d denied, %d decided in memory)", float64(s.heap)/1e6, float64(s.resident)/1e6, s.goroutines, s.requests, s.denied, s.memory)
}

func (p *process) reading(t *testing.T) reading {
	return reading{
		heap: p.metric(t, `go_gc_heap_live_bytes`), resident: p.metric(t, `process_resident_memory_bytes`), goroutines: p.metric(t, `go_goroutines`),
		requests: p.metric(t, `slidegate_requests_total\{.*`), denied: p.metric(t, `slidegate_requests_total\{.*decision="denied".*`), memory: p.metric(t, `slidegate_requests_total\{by="memory".*`),
	}
}

func median(of []reading, value func(reading) int) int {
	values := make([]int, len(of))
	for i, s := range of {
		values[i] = value(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
