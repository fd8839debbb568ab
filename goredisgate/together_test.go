package goredisgate_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestFailuresTogether checks, for both protocol versions, that each caller gets its own result if
// some events in a script call fail while other script calls are in the same pipeline.
func TestFailuresTogether(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			server, calls := redistest.Start(t), &redistest.Calls{}
			o := server.Options(calls.Count)
			client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: faulttest.Dialer(o), Protocol: protocol})
			defer client.Close()
			together{t, server.Client(t), connect(t, client), calls}.play()
		})
	}
}

// together is a test in which events share script calls.
type together struct {
	*testing.T
	admin rueidis.Client
	conn  *window.Connection
	calls *redistest.Calls
}

func (g together) limiter() *window.Limiter {
	return must(window.New(g.conn, window.Config{Name: "together", Limits: perHour, Timeout: time.Minute}))
}

func (g together) play() {
	l := g.limiter()
	g.calls.AwaitSeveral(g, func(events []string) { faulttest.Asker(g.T, l)(events) })
	g.do("SET", "together:{event-5}:w", "foreign")
	g.do("LPUSH", "together:{event-70}:w", "foreign")
	g.do("SET", "together:{event-199}:w", "")
	var others sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 { // their script calls have one event, so the replies are of another type
		others.Go(func() { g.upTo(l, fmt.Sprint("other-", i), done) })
	}
	for round := range int64(20) {
		g.eachOf(l, round)
	}
	close(done)
	others.Wait()
}

func (g together) do(command ...string) {
	g.Helper()
	if err := g.admin.Do(g.Context(), g.admin.B().Arbitrary(command...).Build()).Error(); err != nil {
		g.Fatal(err)
	}
}

// eachOf makes an attempt for each of 200 events. The keys of three of them hold foreign values.
func (g together) eachOf(l *window.Limiter, round int64) {
	g.Helper()
	before := g.calls.Several.Load()
	events := named(200)
	redistest.AtOnce(len(events), func(i int) {
		d, err := l.Allow(g.Context(), events[i])
		if foreign := map[int]string{5: "SLIDEGATE", 70: "WRONGTYPE", 199: "SLIDEGATE"}[i]; foreign != "" {
			if err == nil || !strings.Contains(err.Error(), foreign) || !strings.Contains(err.Error(), fmt.Sprintf("{event-%d}", i)) {
				g.Errorf("round %d, event %d: %+v, %v", round, i, d, err)
			}
		} else if err != nil || d.Allowed != (round < 3) || d.Usage[0].Used != min(3, round+1) {
			g.Errorf("round %d, event %d: %+v, %v", round, i, d, err)
		}
	})
	if g.calls.Several.Load() == before {
		g.Errorf("this test proves nothing: in round %d, no script call has several events", round)
	}
}

// upTo repeatedly makes attempts for event, until done is closed.
func (g together) upTo(l *window.Limiter, event string, done <-chan struct{}) {
	for n := int64(1); ; n++ {
		if d, err := l.AllowUpTo(g.Context(), event, 1); err != nil || d.Usage[0].Used != min(3, n) || d.Allowed != (n <= 3) {
			g.Errorf("%s: %+v, %v", event, d, err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func named(n int) (events []string) {
	for i := range n {
		events = append(events, fmt.Sprint("event-", i))
	}
	return events
}
