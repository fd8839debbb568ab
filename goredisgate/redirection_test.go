package goredisgate

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/slidegate/slidegate/internal/connection"
)

// TestRedirection checks how redirections are parsed.
func TestRedirection(t *testing.T) {
	for reply, want := range map[string]struct {
		addr       string
		asking, ok bool
	}{
		"MOVED 3999 10.0.0.2:6381":       {"10.0.0.2:6381", false, true},
		"ASK 3999 redis-1.example:6381":  {"redis-1.example:6381", true, true},
		"MOVED 3999 fd00::2:6381":        {"[fd00::2]:6381", false, true},
		"MOVED 3999 :6381":               {"10.0.0.1:6381", false, true}, // the host of the node that replied
		"MOVED 3999":                     {},
		"MOVED 3999 nowhere":             {},
		"TRYAGAIN Multiple keys request": {},
	} {
		addr, asking, ok := redirection(&connection.ReplyError{Cause: errors.New(reply)}, "10.0.0.1:6379")
		if addr != want.addr || asking != want.asking || ok != want.ok {
			t.Errorf("%s: %q %v %v", reply, addr, asking, ok)
		}
	}
	if _, _, ok := redirection(errors.New("MOVED 3999 10.0.0.2:6381"), "10.0.0.1:6379"); ok {
		t.Error("an error that is not a server's reply redirects")
	}
}

// TestUnknownNode checks the client that is created for a node that go-redis does not know yet. The
// node that redirects to it may have learned that its own server announces maintenance, which
// changes its options. Those changes must not be copied.
func TestUnknownNode(t *testing.T) {
	c := newCluster(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}))
	defer c.client.Close()
	defer c.Close()
	enabled := &maintnotifications.Config{Mode: maintnotifications.ModeEnabled}
	from := &node{client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: -1, MaintNotificationsConfig: enabled})}
	defer from.client.Close()
	n := c.at("127.0.0.1:2", from)
	if o := n.client.Options(); !n.own || o.Addr != "127.0.0.1:2" || o.ReadTimeout != from.client.Options().ReadTimeout || n != c.at("127.0.0.1:2", from) {
		t.Errorf("%+v with %+v", n, o)
	}
}
