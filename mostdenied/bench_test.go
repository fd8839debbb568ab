package mostdenied_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/slidegate/slidegate/mostdenied"
	"github.com/slidegate/slidegate/window"
)

// BenchmarkCount measures denials of a single event, of a thousand events and of a million events,
// and denials of a single event on all cores.
func BenchmarkCount(b *testing.B) {
	for name, events := range map[string]int{"listed": 1, "thousand": 1000, "million": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			l, denials := mostdenied.New(), denials(events)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l.Count(b.Context(), denials[i%events])
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		l, d := mostdenied.New(), denials(1)[0]
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				l.Count(context.Background(), d)
			}
		})
	})
}

// denials returns one denial for each of n events.
func denials(n int) []window.Denial {
	all := make([]window.Denial, n)
	for i := range all {
		all[i] = window.Denial{Limiter: "login.account", Event: "client-" + strconv.Itoa(i), Limit: window.PerHour(5), Decision: window.Decision{RetryAfter: time.Minute, At: time.Now()}}
	}
	return all
}

// BenchmarkDenied measures a denial by a limiter in memory: without a List, with a List, and with a
// List and a Secret.
func BenchmarkDenied(b *testing.B) {
	list := mostdenied.New()
	for name, cfg := range map[string]window.Config{
		"without": {}, "list": {OnDenied: list.Count}, "secret": {OnDenied: list.Count, Secret: []byte("0123456789abcdef")},
	} {
		b.Run(name, func(b *testing.B) {
			cfg.Name, cfg.Limits = "api", []window.Limit{window.PerHour(5)}
			l := must(window.NewLocal(cfg))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(b.Context(), "198.51.100.7")
			}
		})
	}
}
