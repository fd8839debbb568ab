package goredisgate_test

import (
	"testing"

	"github.com/slidegate/slidegate/internal/test/faulttest"
)

// These tests run the tests in package faulttest, which package window also runs, with go-redis.

func TestTrouble(t *testing.T) { faulttest.Trouble(t, open) }

func TestCallsUnderLoad(t *testing.T) {
	faulttest.CallsUnderLoad(t, open)
}
func TestNobodyElsesDeadline(t *testing.T) { faulttest.NobodyElsesDeadline(t, open) }
func TestNoOutage(t *testing.T)            { faulttest.NoOutage(t, open) }
func TestOutageBeginsAndEnds(t *testing.T) { faulttest.OutageBeginsAndEnds(t, open) }
func TestDegradedIsRefundedInTheFallback(t *testing.T) {
	faulttest.DegradedIsRefundedInTheFallback(t, open)
}
func TestOneShardDown(t *testing.T)          { faulttest.OneShardDown(t, open) }
func TestTimeoutIsKept(t *testing.T)         { faulttest.TimeoutIsKept(t, open) }
func TestConnectingTakesLonger(t *testing.T) { faulttest.ConnectingTakesLonger(t, open) }
func TestDeadlinesOfCallers(t *testing.T)    { faulttest.DeadlinesOfCallers(t, open) }
func TestFallbackFails(t *testing.T)         { faulttest.FallbackFails(t, open) }
func TestWaitWhileDegraded(t *testing.T)     { faulttest.WaitWhileDegraded(t, open) }
func TestAbandonedCallsAreBounded(t *testing.T) {
	faulttest.AbandonedCallsAreBounded(t, open)
}
func TestScriptFlush(t *testing.T)          { faulttest.ScriptFlush(t, open) }
func TestRestart(t *testing.T)              { faulttest.Restart(t, open) }
func TestCertainOnSlowRefusal(t *testing.T) { faulttest.CertainOnSlowRefusal(t, open) }
func TestCertainOnDeadServer(t *testing.T)  { faulttest.CertainOnDeadServer(t, open) }
func TestOneNodeOfCluster(t *testing.T)     { faulttest.OneNodeOfCluster(t, open) }
func TestRoutingUnderLoad(t *testing.T)     { faulttest.RoutingUnderLoad(t, open) }
func TestShardingUnderLoad(t *testing.T) {
	faulttest.ShardingUnderLoad(t, open)
}

func TestShardingBeginsUnderLoad(t *testing.T) {
	faulttest.ShardingBeginsUnderLoad(t, open)
}

func TestReasons(t *testing.T) { faulttest.Reasons(t, open) }

func TestHastyCallers(t *testing.T) { faulttest.HastyCallers(t, open) }

func BenchmarkUncertain(b *testing.B) { faulttest.Uncertain(b, open) }
