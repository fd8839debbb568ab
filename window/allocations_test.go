package window_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestAllocations checks that a decision makes two allocations, its key and its Usage, in addition
// to those that rueidis makes for a bare EVALSHA.
func TestAllocations(t *testing.T) {
	if redistest.Race {
		t.Skip("under the race detector, pools drop items at random")
	}
	client := redistest.Client(t)
	bare := rueidis.NewLuaScript("return {1, 1700000000000, 1, 0, 3600000, 1, 0, 3600000, 1, 0, 3600000}")
	keys, args := []string{redistest.Key(t)}, []string{"allow", "", "1"}
	floor := testing.AllocsPerRun(1000, func() { must(bare.Exec(t.Context(), client, keys, args).AsIntSlice()) })
	for _, limits := range [][]string{{"1000000/1h"}, {"1000000/5s", "1000000/1h", "1000000/1d"}} {
		l := must(window.New(window.On(client), window.Config{Name: redistest.Key(t), Limits: parsed(limits...), Timeout: time.Minute})).WithPlan("pro")
		if n := testing.AllocsPerRun(1000, func() { must(l.Allow(t.Context(), "198.51.100.7")) }); n > floor+2 {
			t.Errorf("%d limits: %v allocations in a decision, %v in a bare EVALSHA", len(limits), n, floor)
		}
	}
	local := must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1000000/1h", "1000000/1d")}))
	if n := testing.AllocsPerRun(1000, func() { must(local.Allow(t.Context(), "198.51.100.7")) }); n > 1 {
		t.Errorf("%v allocations in a decision in memory", n)
	}
}

// heapPerLimiter is the most bytes that a limiter may take before its first call.
const heapPerLimiter = 1024

// TestHeapOfLimiters checks how much memory a limiter takes before its first call, so that a
// service can hold one for each tenant. With -v, it prints the bytes and the objects.
func TestHeapOfLimiters(t *testing.T) {
	if redistest.Race {
		t.Skip("under the race detector, objects are larger")
	}
	const n = 1000
	conn, limiters := window.On(redistest.Client(t)), make([]*window.Limiter, n)
	cfg := window.Config{Name: "tenant", Limits: parsed("5/1h")}
	must(window.New(conn, cfg)) // what all limiters of the connection share
	before := memStats()
	for i := range limiters {
		limiters[i] = must(window.New(conn, cfg))
	}
	after := memStats()
	bytes, objects := (int64(after.HeapAlloc)-int64(before.HeapAlloc))/n, (int64(after.HeapObjects)-int64(before.HeapObjects))/n
	runtime.KeepAlive(limiters)
	t.Logf("%d bytes in %d objects", bytes, objects)
	if bytes > heapPerLimiter {
		t.Errorf("a limiter takes %d bytes", bytes)
	}
}
