package proxy

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// contender is a way to reach the server. It records the time per request, and the statuses of the
// responses.
type contender struct {
	name  string
	url   string
	took  []time.Duration // the time per request in each round
	codes [600]atomic.Int64
}

// BenchmarkRequest compares the proxy with limits, the proxy without limits, and no proxy. It
// alternates between them in rounds of 320 requests. The time per request is the duration of the
// round divided by the number of requests. Each contender's figure is the median over its rounds.
// The server writes four bytes. Clients, proxies, server and Redis share the cores of this machine.
//
//	go test ./cmd/slidegate/internal/proxy -run '^$' -bench Request -benchtime 60x
func BenchmarkRequest(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { compare(b, callers) })
	}
}

// requestsPerRound is how many requests are sent to a contender in a round.
const requestsPerRound = 320

func compare(b *testing.B, callers int) {
	to, _ := startOrigin(b)
	high := []string{"1000000000/1s", "1000000000/1m", "1000000000/1h"}
	contenders := []*contender{
		{name: "no proxy", url: to.String()},
		{name: "proxy without limits", url: startInstance(b, Config{To: to}).url},
		{name: "memory, 1 limit", url: startInstance(b, Config{To: to, Routes: []Route{limitedRoute("/", high[0])}}).url},
		{name: "memory, 3 limits", url: startInstance(b, Config{To: to, Routes: []Route{limitedRoute("/", high...)}}).url},
		{name: "Redis, 1 limit", url: startShared(b, Config{To: to, Routes: []Route{limitedRoute("/", high[0])}})},
		{name: "Redis, 3 limits", url: startShared(b, Config{To: to, Routes: []Route{limitedRoute("/", high...)}})},
		{name: "memory, denied", url: startInstance(b, Config{To: to, Routes: []Route{limitedRoute("/", "1/1h")}}).url},
		{name: "Redis, denied and remembered", url: startShared(b, Config{To: to, Routes: []Route{limitedRoute("/", "1/1h")}})},
	}
	transport := &http.Transport{MaxIdleConnsPerHost: callers}
	defer transport.CloseIdleConnections()
	for _, c := range contenders {
		c.round(b, transport, callers) // open the connections
		c.took = nil
	}
	for b.Loop() {
		for _, c := range contenders {
			c.round(b, transport, callers)
		}
	}
	reportMedians(b, contenders)
}

func startShared(b *testing.B, cfg Config) string {
	cfg.Name, cfg.Redis, cfg.Outage, cfg.Timeout = redistest.Key(b), window.On(redistest.Client(b)), httplimit.FailClosed, testTimeout
	return startInstance(b, cfg).url
}

// round sends the requests of a round.
func (c *contender) round(b *testing.B, transport http.RoundTripper, callers int) {
	began := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range requestsPerRound / callers {
				c.send(b, transport)
			}
		})
	}
	all.Wait()
	c.took = append(c.took, time.Since(began)/requestsPerRound)
}

func (c *contender) send(b *testing.B, transport http.RoundTripper) {
	req, err := http.NewRequest(http.MethodGet, c.url, http.NoBody)
	if err != nil {
		b.Error(err)
		return
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		b.Error(err)
		return
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		b.Error(err)
	}
	c.codes[res.StatusCode].Add(1)
}

// reportMedians checks that each contender did what its name says, and logs the medians.
func reportMedians(b *testing.B, contenders []*contender) {
	var table strings.Builder
	base := median(contenders[1].took)
	for _, c := range contenders {
		sent, refusals := int64((len(c.took)+1)*requestsPerRound), int64(0)
		if strings.Contains(c.name, "denied") {
			refusals = sent - 1
		}
		if c.codes[200].Load() != sent-refusals || c.codes[429].Load() != refusals {
			b.Errorf("%s: %d answers 200 and %d answers 429 of %d", c.name, c.codes[200].Load(), c.codes[429].Load(), sent)
		}
		m := median(c.took)
		fmt.Fprintf(&table, "| %s | %.0f | %.2f |\n", c.name, float64(m)/1e3, float64(m)/float64(base))
	}
	b.Logf("µs a request, × without limits; medians of %d rounds of %d requests\n%s", len(contenders[0].took), requestsPerRound, table.String()) // testing prints at most ten lines
}

func median(of []time.Duration) time.Duration { return slices.Sorted(slices.Values(of))[len(of)/2] }
