package faulttest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// A cause is a way to make Redis fail for a particular reason.
type cause struct {
	name   string
	reason window.Reason
	says   string   // a text that the error contains, often the remedy
	args   []string // the server's arguments
	begin  func(t *testing.T, s *redistest.Server)
	client func(o *rueidis.ClientOption) // changes the client's options, if not nil; the client then connects only after begin
	then   func(t *testing.T, s *redistest.Server)
	needs  []redistest.Feature
}

// send returns a function that sends command to a server.
func send(command ...string) func(t *testing.T, s *redistest.Server) {
	return func(t *testing.T, s *redistest.Server) {
		t.Helper()
		if err := s.Do(t.Context(), command...).Error(); err != nil {
			t.Fatalf("%q: %v", command, err)
		}
	}
}

// asLimiter makes the client log in as the user "limiter".
func asLimiter(o *rueidis.ClientOption) { o.Username, o.Password = "limiter", "password" }

const (
	transient = "try again later"
	userRule  = "give its user ~api:* and the commands of https://github.com/slidegate/slidegate/blob/main/docs/keys.md#the-acl-user"
)

var causes = []cause{
	{name: "keys of another limiter", reason: window.ReasonNoPerm, says: userRule, begin: send("ACL", "SETUSER", "limiter", "on", ">password", "~login:*", "+@all"), client: asLimiter},
	{name: "no EVALSHA", reason: window.ReasonNoPerm, says: userRule, begin: send("ACL", "SETUSER", "limiter", "on", ">password", "~api:*", "+@all", "-evalsha"), client: asLimiter},
	{name: "no SET in scripts", reason: window.ReasonNoPerm, says: userRule, begin: send("ACL", "SETUSER", "limiter", "on", ">password", "~api:*", "+@all", "-set"), client: asLimiter},
	{name: "a wrong password", reason: window.ReasonNoAuth, says: "give the client the user and the password", begin: send("ACL", "SETUSER", "limiter", "on", ">password", "~api:*", "+@all"), client: asLimiter, then: func(t *testing.T, s *redistest.Server) {
		send("ACL", "SETUSER", "limiter", "resetpass", ">other")(t, s)
		send("CLIENT", "KILL", "USER", "limiter")(t, s)
	}},
	{name: "maxmemory", reason: window.ReasonOOM, says: "raise maxmemory", begin: send("CONFIG", "SET", "maxmemory", "1")},
	{name: "min-replicas", reason: "noreplicas", says: transient, begin: send("CONFIG", "SET", "min-replicas-to-write", "1"), needs: []redistest.Feature{redistest.NoReplicas}},
	{name: "saving fails", reason: window.ReasonMisconf, says: "what the server log says", args: []string{"--dir", "/proc"}, begin: failToSave},
	{name: "a replica", reason: window.ReasonReadOnly, says: "connect to the master", begin: send("REPLICAOF", "127.0.0.1", "1")},
	{name: "a replica that serves nothing", reason: "masterdown", says: transient, begin: func(t *testing.T, s *redistest.Server) {
		send("CONFIG", "SET", "replica-serve-stale-data", "no")(t, s)
		send("REPLICAOF", "127.0.0.1", "1")(t, s)
	}},
	{name: "a cluster without slots", reason: "clusterdown", says: transient, args: []string{"--cluster-enabled", "yes"}, begin: func(*testing.T, *redistest.Server) {}},
	{name: "SIGSTOP", reason: window.ReasonTimeout, says: "within 200ms, the timeout", begin: func(t *testing.T, s *redistest.Server) { s.Pause(t) }},
	{name: "SIGKILL", reason: window.ReasonRefused, says: transient, begin: func(t *testing.T, s *redistest.Server) { s.Kill(t) }},
	{name: "a slow script", reason: "busy", says: transient, begin: keepBusy},
	{name: "no Lua", reason: window.ReasonLua, says: "use a server that runs Lua scripts", args: []string{"--rename-command", "EVALSHA", "", "--rename-command", "EVAL", ""}, begin: func(*testing.T, *redistest.Server) {}},
	{name: "no Lua module", reason: window.ReasonLua, says: "or Valkey with its module lua", args: []string{"--enable-module-command", "yes"}, begin: send("MODULE", "UNLOAD", "lua"), needs: []redistest.Feature{redistest.LuaModule}},
}

// failToSave makes the server try to save its data in a directory where it cannot.
func failToSave(t *testing.T, s *redistest.Server) {
	t.Helper()
	send("CONFIG", "SET", "save", "900 1")(t, s)
	send("BGSAVE")(t, s)
	awaitInfo(t, s, "rdb_last_bgsave_status:err")
}

// keepBusy keeps the server busy with an endless script, which is killed when the test ends.
func keepBusy(t *testing.T, s *redistest.Server) {
	t.Helper()
	send("CONFIG", "SET", "lua-time-limit", "1")(t, s)
	client := s.NewClient(t, func(o *rueidis.ClientOption) { o.ConnWriteTimeout = time.Minute })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		client.Do(context.Background(), client.B().Eval().Script("while true do end").Numkeys(0).Build())
	}()
	t.Cleanup(func() {
		s.Do(context.Background(), "SCRIPT", "KILL")
		<-ended
	})
	for s.Do(t.Context(), "GET", "k").Error() == nil {
		<-time.After(time.Millisecond)
	}
}

func awaitInfo(t *testing.T, s *redistest.Server, line string) {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		info, err := s.Do(t.Context(), "INFO").ToString()
		if err != nil || time.Now().After(late) {
			t.Fatalf("no %s: %v", line, err)
		}
		if strings.Contains(info, line) {
			return
		}
	}
}

// Reasons creates each cause, and checks the reason that callers and observers get, with and
// without a Fallback. With -v, it prints a table row for each cause.
func Reasons(t *testing.T, open Open) {
	t.Parallel()
	for _, c := range causes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, f := range c.needs {
				redistest.Needs(t, f)
			}
			c.test(t, open)
		})
	}
}

func (c cause) test(t *testing.T, open Open) {
	s := redistest.Start(t, c.args...)
	var seen observations
	cfg := window.Config{Name: "api", Limits: parsed("1/1h"), Timeout: time.Minute, Observe: seen.observe}
	if c.reason == window.ReasonTimeout {
		cfg.Timeout = Timeout
	}
	options := s.Options(c.client)
	options.ForceSingleClient = true
	conn := c.connect(t, s, open, options)
	l := must(window.New(conn, cfg))
	redistest.Eventually(t, "the circuit breaker opens", func() bool { return c.isOver(t, l) })
	cfg.Fallback = must(window.NewLocal(window.Config{Name: "local", Limits: parsed("1/1h")}))
	with := must(window.New(conn, cfg))
	for n := range 4 {
		if d, err := with.Allow(t.Context(), event); err != nil || !d.Degraded || d.Allowed != (n == 0) {
			t.Errorf("the Fallback: %+v, %v", d, err)
		}
	}
	for _, o := range seen.all {
		if o.Kind == window.KindAllowed && !o.Decision.Degraded {
			continue
		}
		if !c.explains(window.ReasonOf(o.Err)) || strings.Contains(o.Err.Error(), event) {
			t.Errorf("%s: %v", o.Kind, o.Err)
		}
	}
	t.Logf("| %s | `%s` | %v |", c.name, c.reason, seen.all[len(seen.all)-1].Err)
}

// event is easy to find in an error text.
const event = "secret-event"

// connect returns a Connection to a server for which the cause has begun.
func (c cause) connect(t *testing.T, s *redistest.Server, open Open, o rueidis.ClientOption) (conn *window.Connection) {
	t.Helper()
	if c.client == nil {
		conn = open(t, o)
		c.begin(t, s)
		return conn
	}
	c.begin(t, s)
	conn = open(t, o)
	if c.then != nil {
		c.then(t, s)
	}
	return conn
}

// isOver makes an attempt and checks the error. It reports whether the circuit breaker has opened.
func (c cause) isOver(t *testing.T, l *window.Limiter) bool {
	t.Helper()
	_, err := l.Allow(t.Context(), event)
	certain := errors.Is(err, window.ErrOutage)
	if err == nil { // the attempt was made before the cause took effect
		return false
	}
	if !c.explains(window.ReasonOf(err)) || !certain && !errors.Is(err, window.ErrUncertain) {
		t.Errorf("%q: %v", window.ReasonOf(err), err)
	}
	if certain && !strings.Contains(err.Error(), c.says) {
		t.Errorf("%v does not say %q", err, c.says)
	}
	return strings.Contains(err.Error(), "the circuit breaker is open")
}

// explains reports whether r is a possible reason for the cause. At first, connections can break.
func (c cause) explains(r window.Reason) bool {
	return r == c.reason || r == window.ReasonClosed && slices.Contains([]window.Reason{window.ReasonRefused, "busy", window.ReasonNoAuth}, c.reason)
}

// observations records what Observe receives.
type observations struct{ all []window.Observation }

func (s *observations) observe(_ context.Context, o window.Observation) { s.all = append(s.all, o) }
