package window_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestHotEventsMerge checks that 64 callers on one event need at most one script call for eight
// decisions.
func TestHotEventsMerge(t *testing.T) {
	for name, cfg := range map[string]window.Config{
		"allowed":       {Limits: parsed("1000000/1h")},
		"denied":        {Limits: parsed("1/1h")},
		"denials count": {Limits: parsed("1/1h"), CountDenied: true},
	} {
		t.Run(name, func(t *testing.T) {
			var sent redistest.Calls
			cfg.Name, cfg.Timeout = redistest.Key(t), time.Minute
			l := must(window.New(window.On(redistest.NewClient(t, sent.Count)), cfg))
			must(l.Allow(t.Context(), "e"))
			before, decisions := sent.Scripts.Load(), atomic.Int64{}
			var callers sync.WaitGroup
			for range 64 {
				callers.Go(func() {
					for range 300 {
						must(l.Allow(context.Background(), "e"))
						decisions.Add(1)
					}
				})
			}
			callers.Wait()
			calls := sent.Scripts.Load() - before
			t.Logf("%d decisions by %d script calls: %.1f each", decisions.Load(), calls, float64(decisions.Load())/float64(calls))
			if 8*calls > decisions.Load() {
				t.Errorf("%d script calls for %d decisions", calls, decisions.Load())
			}
		})
	}
}
