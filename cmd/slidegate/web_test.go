package main

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/inspect"
	"github.com/slidegate/slidegate/internal/test/redistest"
)

// TestWebAddress checks that the word after --web is taken for its value only if that word is an
// address.
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
		var c inspect.Command
		k, err := kong.New(&c)
		if err == nil {
			_, err = k.Parse(tt.args)
		}
		if err != nil || c.Web != tt.web || c.Args.Name != tt.name {
			t.Errorf("%q: served at %q, name %q, %v", tt.args, c.Web, c.Args.Name, err)
		}
	}
}

// TestWebWarns checks that serving the page to other machines prints a warning about what their
// users can do.
func TestWebWarns(t *testing.T) {
	for args, want := range map[string]string{
		"--web 127.0.0.1:0 --allow-reset": "",
		"--web :0":                        "can see who is limited; restrict",
		"--web 0.0.0.0:0 --allow-reset":   "can see who is limited, and can reset their counts; restrict",
	} {
		_, out := runPage(t, append([]string{"inspect", "--redis", redistest.Addr(t)}, strings.Fields(args)...)...)
		out.mu.Lock()
		if text := out.text.String(); !strings.Contains(text, want) || strings.Contains(text, "anyone") != (want != "") {
			t.Errorf("%s: %s", args, text)
		}
		out.mu.Unlock()
	}
}

// TestPageOnCluster checks pages for events on several shards, through any node.
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

// firstUpdate returns the first event in a stream of updates.
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
