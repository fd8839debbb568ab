package login_test

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// TestMain runs eight tests in parallel, because most of them wait for Redis.
func TestMain(m *testing.M) { redistest.MainParallel(m) }

var (
	noon   = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	home   = netip.MustParseAddr("192.0.2.1")
	secret = []byte("sixteen bytes, or more")
)

// clock is a clock that stands still until a test moves it.
type clock struct{ ms atomic.Int64 }

// newClock returns a clock that starts at noon.
func newClock() *clock {
	c := &clock{}
	c.ms.Store(noon.UnixMilli())
	return c
}

func (c *clock) now() time.Time       { return time.UnixMilli(c.ms.Load()) }
func (c *clock) pass(d time.Duration) { c.ms.Add(d.Milliseconds()) }

func must[T any](v T, err error) T { return redistest.Must(v, err) }

// limits parses limits such as 5/1h.
func limits(texts ...string) (all []window.Limit) {
	for _, text := range texts {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}

// bot returns the i-th address of a botnet.
func bot(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}) }

// newGuard returns a guard on Redis whose keys no other test uses.
func newGuard(t *testing.T, client rueidis.Client, cfg login.Config) *login.Guard {
	t.Helper()
	cfg.Name, cfg.Secret, cfg.Timeout = redistest.Key(t), secret, time.Minute
	return must(login.New(window.On(client), cfg))
}

// refuseScripts begins an outage in which calls fail at once. On a dead server, they try for a second.
func refuseScripts(t *testing.T, server *redistest.Server) {
	t.Helper()
	must(server.Do(t.Context(), "ACL", "SETUSER", "default", "-@scripting").ToString())
}

// guards returns constructors of guards: in memory, on one server and on a cluster.
func guards(t *testing.T, cfg login.Config) map[string]func(name string) *login.Guard {
	t.Helper()
	client, cluster := redistest.Client(t), redistest.Cluster(t)
	prefix := redistest.Key(t)
	named := func(name string) login.Config {
		cfg := cfg
		cfg.Name = prefix + name
		return cfg
	}
	return map[string]func(name string) *login.Guard{
		"memory":  func(name string) *login.Guard { return must(login.NewLocal(named(name))) },
		"server":  func(name string) *login.Guard { return must(login.New(window.On(client), named(name))) },
		"cluster": func(name string) *login.Guard { return must(login.New(window.On(cluster), named(name+"-c"))) },
	}
}

// used returns how many units of an event key are used under the last limit of a budget.
func used(t *testing.T, g *login.Guard, b login.Budget, event string) int64 {
	t.Helper()
	s := must(g.Limiter(b).Inspect(t.Context(), event))
	return s.Limits[len(s.Limits)-1].Used
}
