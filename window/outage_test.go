package window_test

import (
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// The following tests check what limiters on rueidis do while Redis fails. Their code is in
// internal/test/faulttest.

func TestTrouble(t *testing.T) { faulttest.Trouble(t, faulttest.Rueidis) }

func TestCallsUnderLoad(t *testing.T) {
	faulttest.CallsUnderLoad(t, faulttest.Rueidis)
}
func TestNobodyElsesDeadline(t *testing.T) { faulttest.NobodyElsesDeadline(t, faulttest.Rueidis) }
func TestNoOutage(t *testing.T)            { faulttest.NoOutage(t, faulttest.Rueidis) }
func TestOutageBeginsAndEnds(t *testing.T) { faulttest.OutageBeginsAndEnds(t, faulttest.Rueidis) }
func TestDegradedIsRefundedInTheFallback(t *testing.T) {
	faulttest.DegradedIsRefundedInTheFallback(t, faulttest.Rueidis)
}
func TestOneShardDown(t *testing.T)          { faulttest.OneShardDown(t, faulttest.Rueidis) }
func TestTimeoutIsKept(t *testing.T)         { faulttest.TimeoutIsKept(t, faulttest.Rueidis) }
func TestConnectingTakesLonger(t *testing.T) { faulttest.ConnectingTakesLonger(t, faulttest.Rueidis) }
func TestDeadlinesOfCallers(t *testing.T)    { faulttest.DeadlinesOfCallers(t, faulttest.Rueidis) }
func TestFallbackFails(t *testing.T)         { faulttest.FallbackFails(t, faulttest.Rueidis) }
func TestWaitWhileDegraded(t *testing.T)     { faulttest.WaitWhileDegraded(t, faulttest.Rueidis) }
func TestAbandonedCallsAreBounded(t *testing.T) {
	faulttest.AbandonedCallsAreBounded(t, faulttest.Rueidis)
}
func TestScriptFlush(t *testing.T)          { faulttest.ScriptFlush(t, faulttest.Rueidis) }
func TestRestart(t *testing.T)              { faulttest.Restart(t, faulttest.Rueidis) }
func TestCertainOnSlowRefusal(t *testing.T) { faulttest.CertainOnSlowRefusal(t, faulttest.Rueidis) }
func TestCertainOnDeadServer(t *testing.T)  { faulttest.CertainOnDeadServer(t, faulttest.Rueidis) }
func TestOneNodeOfCluster(t *testing.T)     { faulttest.OneNodeOfCluster(t, faulttest.Rueidis) }
func TestRoutingUnderLoad(t *testing.T)     { faulttest.RoutingUnderLoad(t, faulttest.Rueidis) }
func TestShardingUnderLoad(t *testing.T) {
	faulttest.ShardingUnderLoad(t, faulttest.Rueidis)
}

func TestShardingBeginsUnderLoad(t *testing.T) {
	faulttest.ShardingBeginsUnderLoad(t, faulttest.Rueidis)
}

// BenchmarkOpen measures decisions by a Fallback in memory while the circuit breaker is open.
func BenchmarkOpen(b *testing.B) {
	server := redistest.Start(b)
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1000000/1h")}))
	l := must(window.New(window.On(server.Client(b)), window.Config{Name: "open", Limits: parsed("1000000/1h"), Timeout: time.Millisecond, Fallback: local}))
	server.Pause(b)
	defer server.Resume(b)
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		if d, err := l.Allow(b.Context(), "e"); err != nil || !d.Degraded {
			b.Fatal(d, err)
		}
		took = append(took, time.Since(begin))
	}
	b.ReportMetric(float64(quantile(took, 0.5).Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(quantile(took, 0.99).Nanoseconds()), "p99-ns")
}

func quantile(ds []time.Duration, q float64) time.Duration {
	slices.Sort(ds)
	return ds[min(len(ds)-1, int(q*float64(len(ds))))]
}

func TestReasons(t *testing.T) { faulttest.Reasons(t, faulttest.Rueidis) }

func TestHastyCallers(t *testing.T) { faulttest.HastyCallers(t, faulttest.Rueidis) }

func BenchmarkUncertain(b *testing.B) { faulttest.Uncertain(b, faulttest.Rueidis) }
