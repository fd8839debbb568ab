package mostdenied_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/slidegate/slidegate/mostdenied"
	"github.com/slidegate/slidegate/window"
)

func BenchmarkCount(b *testing.B) {
	ctx := context.Background()
	d := window.Denial{Limiter: "login.account", Event: "198.51.100.7", Limit: window.PerHour(5), RetryAfter: time.Minute, At: time.Now()}
	b.Run("listed", func(b *testing.B) {
		l := mostdenied.New()
		b.ReportAllocs()
		for b.Loop() {
			l.Count(ctx, d)
		}
	})
	events := make([]string, 1_000_000)
	for i := range events {
		events[i] = "client-" + strconv.Itoa(i)
	}
	b.Run("million", func(b *testing.B) {
		l := mostdenied.New()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			d.Event = events[i%len(events)]
			l.Count(ctx, d)
		}
	})
	b.Run("contended", func(b *testing.B) {
		l := mostdenied.New()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				l.Count(ctx, d)
			}
		})
	})
	b.Run("parallel", func(b *testing.B) {
		l := mostdenied.New()
		b.RunParallel(func(p *testing.PB) {
			d := d
			for i := 0; p.Next(); i++ {
				d.Event = events[i%1000]
				l.Count(ctx, d)
			}
		})
	})
}
