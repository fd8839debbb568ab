package keyspace

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// set sets n keys with the given prefix.
func set(t *testing.T, client rueidis.Client, prefix string, n int) {
	t.Helper()
	commands := make(rueidis.Commands, n)
	for i := range n {
		commands[i] = client.B().Set().Key(fmt.Sprint(prefix, i)).Value("x").Build()
	}
	for _, r := range client.DoMulti(t.Context(), commands...) {
		if r.Error() != nil {
			t.Fatal(r.Error())
		}
	}
}

// walked returns the keys with the given prefix that a walk sees, and the masters after the walk.
func walked(t *testing.T, client rueidis.Client, prefix string, budget Budget) (found []string, masters []*Master) {
	t.Helper()
	masters, err := Masters(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	err = Walk(t.Context(), masters, budget, func(_ int, keys []string) error {
		found = append(found, slices.DeleteFunc(keys, func(key string) bool { return !strings.HasPrefix(key, prefix) })...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return slices.Compact(found), masters
}

// TestWalkSeesAll checks that a walk sees all keys of a server, and of a cluster that has replicas.
func TestWalkSeesAll(t *testing.T) {
	for name, client := range map[string]rueidis.Client{
		"server":   redistest.Client(t),
		"cluster":  redistest.Cluster(t),
		"replicas": redistest.Replicated(t).NewClient(t, func(*rueidis.ClientOption) {}),
	} {
		prefix := redistest.Key(t)
		set(t, client, prefix, 1000)
		found, masters := walked(t, client, prefix, Budget{time.Hour, math.MaxInt64})
		if len(found) != 1000 {
			t.Errorf("%s: %d keys", name, len(found))
		}
		if want := map[string]int{"server": 1, "cluster": 3, "replicas": 3}[name]; len(masters) != want {
			t.Errorf("%s: %d masters", name, len(masters))
		}
		for _, m := range masters {
			if m.Share() != 1 || m.Seen < m.Size {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
}

// TestWalkEnds checks that a walk ends when it has used up the keys or the time in its budget, and
// that Share then returns how much of the keys it saw.
func TestWalkEnds(t *testing.T) {
	client := redistest.Start(t).Client(t)
	set(t, client, "k", 2000)
	found, masters := walked(t, client, "k", Budget{time.Hour, 450})
	if m := masters[0]; m.Ended || m.Size != 2000 || m.Seen < 450 || m.Seen > 1000 || m.Share() != float64(m.Seen)/2000 || int64(len(found)) != m.Seen {
		t.Errorf("%d keys, %+v", len(found), m)
	}
	if found, masters := walked(t, client, "k", Budget{0, 450}); len(found) > 0 || masters[0].Share() != 0 {
		t.Errorf("%d keys, %+v", len(found), masters[0])
	}
}

// TestWalkFails checks that a walk ends if a visit fails, or if the context is done.
func TestWalkFails(t *testing.T) {
	client, broken := redistest.Cluster(t), errors.New("broken")
	set(t, client, redistest.Key(t), 1000)
	masters, err := Masters(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	visit := func(int, []string) error { return broken }
	if err := Walk(t.Context(), masters, Budget{time.Hour, math.MaxInt64}, visit); !errors.Is(err, broken) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	visit = func(int, []string) error { cancel(); return nil }
	if err := Walk(ctx, masters, Budget{time.Hour, math.MaxInt64}, visit); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestMasterThatFails checks that Masters returns the other masters if one cannot be reached, and an
// error that names the node.
func TestMasterThatFails(t *testing.T) {
	o, down := redistest.ClusterOptions(t), slices.Sorted(maps.Keys(redistest.Cluster(t).Nodes()))[1]
	o.InitAddress = slices.DeleteFunc(o.InitAddress, func(addr string) bool { return addr == down })
	dialed := o.DialCtxFn
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		if addr == down {
			return nil, errors.New("down")
		}
		return dialed(ctx, addr, d, c)
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	masters, err := Masters(t.Context(), client)
	if len(masters) != 2 || err == nil || err.Error() != down+": ROLE: down" {
		t.Errorf("%d masters, %v", len(masters), err)
	}
}

// TestWalkOnlyReads checks that a user who may only read and count keys can do a walk.
func TestWalkOnlyReads(t *testing.T) {
	server := redistest.Start(t)
	if err := server.Do(t.Context(), "ACL", "SETUSER", "reader", "on", ">pass", "+scan", "+dbsize", "+client|tracking", "+hello").Error(); err != nil {
		t.Fatal(err)
	}
	set(t, server.Client(t), "k", 300)
	reader := server.NewClient(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "reader", "pass" })
	if found, _ := walked(t, reader, "k", Budget{time.Hour, math.MaxInt64}); len(found) != 300 {
		t.Errorf("%d keys", len(found))
	}
}

// TestPause checks that pauses grow with the duration of the calls, and grow more while the server
// is slow.
func TestPause(t *testing.T) {
	const ms = time.Millisecond
	var b brake
	for i, tt := range []struct{ scan, all, want time.Duration }{
		{2 * ms, 5 * ms, 15 * ms}, {ms, 3 * ms, 9 * ms}, {2 * ms, 4 * ms, 14 * ms}, {ms, 3 * ms, 9 * ms}, {30 * ms, 40 * ms, maxPause},
	} {
		if got := b.pause(tt.scan, tt.all); got != tt.want {
			t.Errorf("%d: %v, not %v", i, got, tt.want)
		}
	}
}
