package window_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestHotEventsMerge checks that 64 callers on one event, or on several, need at most one script call
// for eight decisions.
func TestHotEventsMerge(t *testing.T) {
	for _, row := range []struct {
		name   string
		cfg    window.Config
		events []string
	}{
		{"allowed", window.Config{Limits: parsed("1000000/1h")}, []string{"e"}},
		{"denied", window.Config{Limits: parsed("1/1h")}, []string{"e"}},
		{"denials count", window.Config{Limits: parsed("1/1h"), CountDenied: true}, []string{"e"}},
		{"several", window.Config{Limits: parsed("100/1h")}, strings.Fields("a b c d e f g h i j k l m n o p")},
	} {
		t.Run(row.name, func(t *testing.T) {
			var sent redistest.Calls
			row.cfg.Name, row.cfg.Timeout = redistest.Key(t), time.Minute
			l := must(window.New(window.On(redistest.NewClient(t, sent.Count)), row.cfg))
			faulttest.AwaitGroups(t, l, &sent)
			must(l.Allow(t.Context(), "e"))
			before, decisions := sent.Scripts.Load(), atomic.Int64{}
			var callers sync.WaitGroup
			for c := range 64 {
				callers.Go(func() {
					for i := range 300 {
						must(l.Allow(context.Background(), row.events[(c+i)%len(row.events)]))
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
