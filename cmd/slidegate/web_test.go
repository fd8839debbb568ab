package main

import (
	"bufio"
	"net/http"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
	"github.com/slidegate/slidegate/internal/redistest"
)

// TestWebAddress: a word after --web is its value only if it is an address.
func TestWebAddress(t *testing.T) {
	for _, tt := range []struct {
		args []string
		web  flags.PageAddress
		name flags.Argument
	}{
		{[]string{"--web"}, "127.0.0.1:8002", ""},
		{[]string{"--web", "login", "alice"}, "127.0.0.1:8002", "login"},
		{[]string{"--web", "login:5", "alice"}, "127.0.0.1:8002", "login:5"},
		{[]string{"--web", "--limit", "5/1h", "login"}, "127.0.0.1:8002", "login"},
		{[]string{"--web", ":9000", "login"}, ":9000", "login"},
		{[]string{"--web", "[::1]:0"}, "[::1]:0", ""},
		{[]string{"--web=localhost:9000", "login"}, "localhost:9000", "login"},
	} {
		var c inspectCommand
		k, err := kong.New(&c)
		if err == nil {
			_, err = k.Parse(tt.args)
		}
		if err != nil || c.Web != tt.web || c.Args.Name != tt.name {
			t.Errorf("%q: served at %q, name %q, %v", tt.args, c.Web, c.Args.Name, err)
		}
	}
}

// TestWebBegins: the address that is printed asks for what the command line names.
func TestWebBegins(t *testing.T) {
	for args, want := range map[string]string{
		"":                             "",
		"login alice":                  "?event=alice&name=login",
		"--limit 5/1h --ar1 login":     "?ar1=1&limit=5%2F1h&name=login",
		"--limit 5/1h,9/1d":            "?limit=5%2F1h%2C9%2F1d",
		"--login login alice ::1":      "?event=alice&ip=%3A%3A1&login=1&name=login",
		"--login --budget total=1/1h ": "?login=1",
	} {
		var c inspectCommand
		k, err := kong.New(&c)
		if err == nil {
			_, err = k.Parse(strings.Fields("--web " + args))
		}
		c.Name, c.Event = c.Args.Name, c.Args.Event
		if got := c.begin(); err != nil || got != want {
			t.Errorf("%q: %q, not %q, %v", args, got, want, err)
		}
	}
}

// TestWebWarns: who serves the page to others learns what they can do.
func TestWebWarns(t *testing.T) {
	for args, want := range map[string]string{
		"--web 127.0.0.1:0 --allow-reset": "",
		"--web :0":                        "sees who is limited; keep",
		"--web 0.0.0.0:0 --allow-reset":   "sees who is limited, and can have it forgotten; keep",
	} {
		_, out := runPage(t, append([]string{"inspect", "--redis", redistest.Addr(t)}, strings.Fields(args)...)...)
		out.mu.Lock()
		if text := out.text.String(); !strings.Contains(text, want) || strings.Contains(text, "everybody") != (want != "") {
			t.Errorf("%s: %s", args, text)
		}
		out.mu.Unlock()
	}
}

// TestWebForgets: a Reset with an address that is none forgets nothing.
func TestWebForgets(t *testing.T) {
	g := newGuardedService(t)
	g.fail(t, "alice", "192.0.2.31", time.Minute)
	before := keys(t, g.name)
	w := &web{subject: subject{Secret: g.secret}, client: g.client, now: func() time.Time { return afternoon }}
	q := page.Query{Name: g.name, Event: "alice", Login: true, Address: "192.0.2"}
	if err := w.forget(t.Context(), q); err == nil || len(keys(t, g.name)) != len(before) {
		t.Errorf("%v; %q", err, keys(t, g.name))
	}
	q.Address = "::ffff:192.0.2.31"
	if err := w.forget(t.Context(), q); err != nil || len(keys(t, g.name)) != 1 { // that of the address
		t.Errorf("%v; %q", err, keys(t, g.name))
	}
}

// TestWebAsks: a look of the page is one call of Redis, and says what slidegate inspect says.
func TestWebAsks(t *testing.T) {
	s := &service{name: "login", client: redistest.Start(t).NewClient(t, nil)}
	s.count(t, "2/1h,9/1d", "alice", 2, 30*m)
	w := &web{client: s.client, now: func() time.Time { return afternoon }}
	for limits, want := range map[string]string{"2/1h": "denied", "3/1h": "allowed", "": "unknown"} {
		look, err := w.open(page.Query{Name: s.name, Event: "alice", Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		before := scriptCalls(t, s.client)
		got, err := look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := scriptCalls(t, s.client) - before; n != 1 {
			t.Errorf("%q: %d calls", limits, n)
		}
		st := got.(*state)
		switch verdict := st.Verdict; {
		case verdict == nil && want == "unknown", verdict != nil && verdict.Allowed == (want == "allowed"):
		default:
			t.Errorf("%q: %+v", limits, st)
		}
		if st.Limits[len(st.Limits)-1].Used != 2 || !st.Stored {
			t.Errorf("%q: %+v", limits, st)
		}
	}
	for _, bad := range []string{"5", "5/1h,6/60m"} {
		if _, err := w.open(page.Query{Name: s.name, Event: "alice", Limits: bad}); err == nil {
			t.Errorf("took %q", bad)
		}
	}
}

// TestPagesOnRedis: 200 pages on one event ask Redis twice a second together, and nothing of them
// is left when they are closed.
func TestPagesOnRedis(t *testing.T) {
	server := redistest.Start(t)
	client := server.NewClient(t, nil)
	address := strings.Replace(servePageOf(t, server.Addr(), "--limit", "5/1h", "login", "alice"), "/?", "/watch?", 1)
	before, calls, began := runtime.NumGoroutine(), scriptCalls(t, client), time.Now()
	const pages, updates = 200, 5
	var all sync.WaitGroup
	for range pages {
		all.Go(func() { readUpdates(t, address, updates) })
	}
	all.Wait()
	seconds := time.Since(began).Seconds()
	if n := scriptCalls(t, client) - calls; float64(n) > 2*seconds+2 { // at once, and one that loads the script
		t.Errorf("%d calls in %.1f s", n, seconds)
	}
	http.DefaultClient.CloseIdleConnections()
	for late := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; <-time.After(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%d goroutines, and %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestPageOnCluster: pages about events of several shards, by way of any node.
func TestPageOnCluster(t *testing.T) {
	node, _, _ := strings.Cut(clusterAddresses(t), ",")
	s := &service{name: redistest.Key(t), client: redistest.Cluster(t)}
	address := servePageOf(t, node, "--limit", "5/1h", s.name, "alice")
	for _, event := range []string{"alice", "bob", "carol", "dave"} {
		allow(t, s.limiter(t, "5/1h"), event, true)
		watch := strings.NewReplacer("/?", "/watch?", "event=alice", "event="+event).Replace(address)
		if update := firstUpdate(t, watch); !strings.Contains(update, `"used":1`) {
			t.Errorf("%s: %s", event, update)
		}
	}
}

// firstUpdate is what a stream of updates begins with.
func firstUpdate(t *testing.T, address string) string {
	t.Helper()
	res, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
	}
	return lines.Text()
}

// readUpdates reads so many updates of a stream, and closes it.
func readUpdates(t *testing.T, address string, n int) {
	res, err := http.Get(address)
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for n > 0 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), `data: {"shown":"alice","state":{"limiter":"login"`) {
			n--
		}
	}
	if n > 0 {
		t.Errorf("%d updates are missing: %v", n, lines.Err())
	}
}

// scriptCalls returns how often a server ran a script.
func scriptCalls(t *testing.T, client rueidis.Client) (n int) {
	t.Helper()
	stats, err := client.Do(t.Context(), client.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`cmdstat_eval[a-z_]*:calls=([0-9]+)`).FindAllStringSubmatch(stats, -1) {
		calls, _ := strconv.Atoi(found[1])
		n += calls
	}
	return n
}
