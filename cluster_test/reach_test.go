package cluster_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/internal/test/tlstest"
	"github.com/slidegate/slidegate/window"
)

// TestSentinel kills the master of a Sentinel deployment under load. Calls must end in time, the
// limiter must continue on the replica by itself, and the units that the replica had received must
// still count.
func TestSentinel(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, k kind) {
		t.Parallel()
		w := redistest.Sentinel(t)
		l := k.newWithShortTimeout(t, w.Options(), perMonth(neverReached))
		received := attemptN(t, l, 100)
		w.AwaitReplica(t)
		group := startLoad(t, callers, l.Allow, roundRobin([]string{"e"}))
		group.await(t, 500)
		timers, began := startTimers(), time.Now()
		w.Master.Kill(t)
		redistest.Eventually(t, "the replica takes over", func() bool { return isMaster(t, w.Replica) })
		takeover := time.Since(began)
		group.await(t, 500)
		attempts := slices.Concat(received, group.end())
		limit := timers.Limit()
		for _, a := range attempts {
			if a.took > limit {
				t.Errorf("a call took %v, longer than %v: %v", a.took, limit, a.err)
			}
		}
		n := count(t, attempts)["e"]
		n.counted = neverReached - freeUnits(t, l, "e")
		after := int64(len(slices.DeleteFunc(attempts, func(a attempt) bool { return !a.allowed() || a.began.Before(began.Add(takeover)) })))
		if n.counted < int64(len(received))+after || n.counted > n.allowed+n.uncertain {
			t.Errorf("%d units were received and %d allowed after the takeover: %+v", len(received), after, *n)
		}
		t.Logf("the replica took over after %v; %+v", takeover.Round(10*time.Millisecond), *n)
	})
}

// isMaster reports whether s is a master. It ignores errors, because Sentinel closes the
// connections of a server that it promotes.
func isMaster(t *testing.T, s *redistest.Server) bool {
	t.Helper()
	info, err := s.Do(t.Context(), "INFO", "replication").ToString()
	return err == nil && strings.Contains(info, "role:master")
}

// attemptN sends n attempts on one event, all of which the limiter must allow.
func attemptN(t *testing.T, l limiter, n int) (attempts []attempt) {
	t.Helper()
	for range n {
		a := allowFunc(l.Allow).attempt(t.Context(), "e")
		if !a.allowed() {
			t.Fatalf("%+v %v", a.decision, a.err)
		}
		attempts = append(attempts, a)
	}
	return attempts
}

// TestPromotedByHand makes a replica the master, as an operator would, and makes the old master its
// replica. Until the connections to the old master are closed, calls count nothing and return an
// error. After that, the limiter continues with all counts.
func TestPromotedByHand(t *testing.T) {
	eachClient(t, func(t *testing.T, k kind) {
		pair := redistest.Replica(t)
		l := k.newLimiter(t, pair.Options(), perMonth(10))
		attemptN(t, l, 4)
		pair.AwaitReplica(t)
		pair.Promote(t)
		left := 6
		if _, err := l.Allow(t.Context(), "e"); err == nil {
			left-- // the client had lost its connection and opened one to the new master
		} else if !errors.Is(err, window.ErrOutage) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("on the old master: %v", err)
		}
		must(pair.Replica.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").AsInt64())
		redistest.Eventually(t, "the new master decides", func() bool {
			_, err := l.Peek(t.Context(), "e")
			return err == nil && isMaster(t, pair.Master)
		})
		attemptN(t, l, left)
		if d, err := l.Allow(t.Context(), "e"); err != nil || d.Allowed {
			t.Errorf("beyond its limit: %+v %v", d, err)
		}
	})
}

// TestTLS checks decisions and the DenialCache over TLS. The server rejects clients without a
// certificate.
func TestTLS(t *testing.T) {
	s := tlstest.NewAuthority(t).Start(t)
	each(t, func(t *testing.T, k kind) { checkVerbs(t, k, s.Client(t)) })
	nobody := s.Options(nil)
	nobody.TLSConfig = nobody.TLSConfig.Clone()
	nobody.TLSConfig.Certificates = nil
	if c, err := rueidis.NewClient(nobody); err == nil {
		c.Close()
		t.Error("a client without a certificate can connect")
	}
}

// checkVerbs checks that a limiter allows, denies, refunds and resets.
func checkVerbs(t *testing.T, k kind, client rueidis.Client) {
	t.Helper()
	l := must(k.newOnClient(client, window.Config{Name: redistest.Key(t), Limits: []window.Limit{perMonth(1)}, DenialCache: 10}))
	d := must(l.Allow(t.Context(), "e"))
	for range 4 {
		if d, err := l.Allow(t.Context(), "e"); err != nil || d.Allowed {
			t.Errorf("beyond its limit: %+v %v", d, err)
		}
	}
	if err := l.Refund(t.Context(), "e", d); err != nil {
		t.Error(err)
	}
	must(l.Allow(t.Context(), "e"))
	if err := l.Reset(t.Context(), "e"); err != nil || freeUnits(t, l, "e") != 1 {
		t.Errorf("after a Reset: %v", err)
	}
}

// TestRESP2 checks decisions through a client that supports only RESP2.
func TestRESP2(t *testing.T) {
	client := redistest.NewClient(t, func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true })
	each(t, func(t *testing.T, k kind) { checkVerbs(t, k, client) })
}

// TestACLOfOneServer runs TestACL on a server that is not part of a cluster, and thus on each
// version of Redis. Its user has the permissions to prove that Redis is a single server.
func TestACLOfOneServer(t *testing.T) {
	s, rule, calls := redistest.Start(t), userRule(t), &redistest.Calls{}
	must(s.Do(t.Context(), append([]string{"ACL", "SETUSER"}, append(rule, "~TestACL*")...)...).ToString())
	client := s.NewClient(t, func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.ForceSingleClient = "limiter", "password", false // the client must find out whether this is a cluster
		calls.Count(o)
	})
	each(t, func(t *testing.T, k kind) {
		checkVerbs(t, k, client)
		l := must(k.newOnClient(client, window.Config{Name: "login", Limits: []window.Limit{perMonth(1)}, Timeout: time.Minute}))
		calls.AwaitSeveral(t, faulttest.Asker(t, l))
	})
	checkDenied(t, s)
}

// TestACLWithoutProbes checks that each call decides on one event if the user lacks the permissions
// to prove that Redis is a single server: those for the probe keys, or that for EVAL.
func TestACLWithoutProbes(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		for name, change := range map[string][]string{
			"keys": {"resetkeys", "~login:{*}:" + k.suffix},
			"EVAL": {"-eval"},
		} {
			t.Run(name, func(t *testing.T) {
				s, calls := redistest.Start(t), &redistest.Calls{}
				ask := faulttest.Asker(t, must(k.newOnClient(s.Client(t), window.Config{Name: "login", Limits: []window.Limit{perMonth(1)}})))
				ask([]string{"e"}) // from now on, the server knows the script
				must(s.Do(t.Context(), slices.Concat([]string{"ACL", "SETUSER"}, userRule(t), change)...).ToString())
				client := s.NewClient(t, func(o *rueidis.ClientOption) {
					o.Username, o.Password = "limiter", "password"
					calls.Count(o)
				})
				ask = faulttest.Asker(t, must(k.newOnClient(client, window.Config{Name: "login", Limits: []window.Limit{perMonth(1)}})))
				calls.AwaitProof(t, ask)
				calls.AwaitSingles(t, ask)
				if n := calls.Several.Load(); n > 0 {
					t.Errorf("%d calls with several events", n)
				}
			})
		}
	})
}

// TestFull fills the server's memory. Allow must then fail and count nothing, while Peek still
// works. Once there is room, Allow must work again.
func TestFull(t *testing.T) {
	eachClient(t, func(t *testing.T, k kind) {
		s := redistest.Start(t, "--maxmemory-policy", "noeviction")
		l := k.newLimiter(t, s.Options(nil), perMonth(2))
		attemptN(t, l, 1)
		must(s.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1").ToString())
		if _, err := l.Allow(t.Context(), "e"); !errors.Is(err, window.ErrOutage) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("on a full server: %v", err)
		}
		if n := freeUnits(t, l, "e"); n != 1 {
			t.Errorf("%d units are free", n)
		}
		must(s.Do(t.Context(), "CONFIG", "SET", "maxmemory", "0").ToString())
		attemptN(t, l, 1)
	})
}
