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

	"github.com/slidegate/slidegate/internal/redistest"
)

// contender is a way to the server, and how long its requests took, a round each.
type contender struct {
	name  string
	url   string
	took  []time.Duration
	codes [600]atomic.Int64
}

// BenchmarkRequest compares the proxy with limits to the same proxy without, and to no proxy, in slices that take turns: the time of a request is that of its slice over the
// number of requests in it, and the figure of a contender the median of its slices. The server writes four bytes. All is on this machine, so clients, proxies, server and Redis share its cores.
//
//	go test ./cmd/slidegate/internal/proxy -run '^$' -bench Request -benchtime 60x
func BenchmarkRequest(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { compare(b, callers) })
	}
}

// slice is how many requests a contender answers in its turn.
const slice = 320

func compare(b *testing.B, callers int) {
	to, _ := origin(b)
	high := []string{"1000000000/1s", "1000000000/1m", "1000000000/1h"}
	contenders := []*contender{
		{name: "no proxy", url: to.String()},
		{name: "proxy without limits", url: listen(b, Config{To: to}).url},
		{name: "memory, 1 limit", url: listen(b, Config{To: to, Routes: []Route{limited("/", high[0])}}).url},
		{name: "memory, 3 limits", url: listen(b, Config{To: to, Routes: []Route{limited("/", high...)}}).url},
		{name: "Redis, 1 limit", url: shared(b, Config{To: to, Routes: []Route{limited("/", high[0])}})},
		{name: "Redis, 3 limits", url: shared(b, Config{To: to, Routes: []Route{limited("/", high...)}})},
		{name: "memory, denied", url: listen(b, Config{To: to, Routes: []Route{limited("/", "1/1h")}}).url},
		{name: "Redis, denied and remembered", url: shared(b, Config{To: to, Routes: []Route{limited("/", "1/1h")}})},
	}
	transport := &http.Transport{MaxIdleConnsPerHost: callers}
	defer transport.CloseIdleConnections()
	for _, c := range contenders {
		c.round(b, transport, callers) // connects
		c.took = nil
	}
	for b.Loop() {
		for _, c := range contenders {
			c.round(b, transport, callers)
		}
	}
	tell(b, contenders)
}

func shared(b *testing.B, cfg Config) string {
	cfg.Name, cfg.Redis, cfg.Outage, cfg.Timeout = redistest.Key(b), connectedTo(b, redistest.Client(b)), Closed, long
	return listen(b, cfg).url
}

// round sends a slice of requests.
func (c *contender) round(b *testing.B, transport http.RoundTripper, callers int) {
	began := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range slice / callers {
				c.send(b, transport)
			}
		})
	}
	all.Wait()
	c.took = append(c.took, time.Since(began)/slice)
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

// tell checks that each contender did what its name says, and prints medians.
func tell(b *testing.B, contenders []*contender) {
	var table strings.Builder
	base := middle(contenders[1].took)
	for _, c := range contenders {
		sent, refusals := int64((len(c.took)+1)*slice), int64(0)
		if strings.Contains(c.name, "denied") {
			refusals = sent - 1
		}
		if c.codes[200].Load() != sent-refusals || c.codes[429].Load() != refusals {
			b.Errorf("%s: %d answers 200 and %d answers 429 of %d", c.name, c.codes[200].Load(), c.codes[429].Load(), sent)
		}
		m := middle(c.took)
		fmt.Fprintf(&table, "| %s | %.0f | %.2f |\n", c.name, float64(m)/1e3, float64(m)/float64(base))
	}
	b.Logf("µs a request, × without limits; medians of %d slices of %d requests\n%s", len(contenders[0].took), slice, table.String()) // of more than ten lines, testing cuts the rest
}

func middle(of []time.Duration) time.Duration { return slices.Sorted(slices.Values(of))[len(of)/2] }
