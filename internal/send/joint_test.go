package send

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// onTwoLines runs test with two limiters on one Connection to a server that accepts calls for
// several keys.
func onTwoLines(t *testing.T, test func(t *testing.T, s *servertest.Server, a, b *line)) {
	t.Helper()
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		s.SetKeys(servertest.AllKeys)
		a := newLine(t, s.Client(t))
		b := &line{Timeout: a.Timeout, script: a.script, log: &reportLog{}}
		b.Pipeline = New(a.office.conn, "other", b.log.recorder())
		test(t, s, a, b)
	})
}

// together returns a request for the event "e" of both limiters.
func together(a, b *line) *Request {
	r := a.request("e")
	r.Group, r.Merge = "", Merge{}
	r.Joint = &Joint{Keys: []string{a.Key("e"), "other:{e}"}, Units: []string{"1", "1"}, Others: []*Pipeline{b.Pipeline}}
	return r
}

// TestJointProof checks that the keys of two limiters join once there is a proof for each of them,
// which the first call of Joins starts, and that they do not join for a second after a server has
// refused a call for several keys.
func TestJointProof(t *testing.T) {
	onTwoLines(t, func(t *testing.T, s *servertest.Server, a, b *line) {
		wantEqual(t, "joins at first", a.Joins(b.Pipeline), false)
		synctest.Wait()
		wantEqual(t, "joins", a.Joins(b.Pipeline), true)
		wantEqual(t, "joins the other way round", b.Joins(a.Pipeline), true)
		wantEqual(t, "proofs", slices.Sorted(slices.Values(s.Proofs())), []int{firstProbes, 2 * firstProbes})
		a.SetApart()
		wantEqual(t, "joins after a refusal", a.Joins(b.Pipeline), false)
		servertest.Pass(apartTime)
		wantEqual(t, "joins later", a.Joins(b.Pipeline), true)
		s.SetKeys(servertest.Divided)
		servertest.Pass(proofRenewal)
		a.Joins(b.Pipeline)
		synctest.Wait()
		wantEqual(t, "joins after a failed renewal", a.Joins(b.Pipeline), false)
	})
}

// TestOneProofForEachLimiter checks that any two of several limiters join after one proof for each
// limiter, as long as both proofs hold.
func TestOneProofForEachLimiter(t *testing.T) {
	onTwoLines(t, func(t *testing.T, s *servertest.Server, a, b *line) {
		third := New(a.office.conn, "third", b.log.recorder())
		a.Joins(b.Pipeline)
		a.Joins(third)
		wantEqual(t, "joins at first", b.Joins(third), false)
		synctest.Wait()
		wantEqual(t, "joins", b.Joins(third), true)
		wantEqual(t, "proofs", slices.Sorted(slices.Values(s.Proofs())), []int{firstProbes, 2 * firstProbes, 2 * firstProbes})
		s.SetKeys(servertest.Divided)
		servertest.Pass(proofRenewal)
		b.Joins(a.Pipeline)
		synctest.Wait()
		wantEqual(t, "joins after a failed renewal", b.Joins(third), false)
	})
}

// TestJointKeepsItsPlace checks that a request for several keys is one script call, and that it
// runs after earlier requests for its keys in the batch and before later ones.
func TestJointKeepsItsPlace(t *testing.T) {
	onTwoLines(t, func(t *testing.T, s *servertest.Server, a, b *line) {
		askTogether(t, s, a, []string{"x", "y"}) // starts a proof
		synctest.Wait()
		joint, last := together(a, b), a.request("e")
		before := len(s.Received())
		askInOneBatch(t, s, a, []*Request{a.request("e"), a.request("free"), joint, last})
		var calls [][]string
		for _, c := range s.Received()[before+maxSenders:] {
			keys := []string{c.Key}
			for _, other := range c.More {
				keys = append(keys, other.Key)
			}
			calls = append(calls, keys)
		}
		wantEqual(t, "calls", calls, [][]string{{a.Key("e")}, {a.Key("free")}, joint.Joint.Keys, {a.Key("e")}})
		wantEqual(t, "reply", joint.Reply, []int64{2, 1})
		wantEqual(t, "reply after it", last.Reply, []int64{3})
	})
}

// TestJointFailsForAll checks that a failure counts in the circuit breakers of all limiters, and
// that a single open breaker holds back a request for keys of several limiters.
func TestJointFailsForAll(t *testing.T) {
	onTwoLines(t, func(t *testing.T, s *servertest.Server, a, b *line) {
		s.Always(servertest.Refusal("ERR broken"))
		for range 3 {
			r := together(a, b)
			a.Do(t.Context(), a.Timeout, r)
			wantError(t, "broken", r.Err, health.ErrOutage)
			wantEqual(t, "key", r.Err.(*health.Failure).Key, "test:{e}, other:{e}") //nolint:errorlint,forcetypeassert // that is what Do sets
			r.Free()
		}
		wantEqual(t, "reports", append(a.log.read(), b.log.read()...), []string{"0s: outage began", "0s: outage began"})
		s.Always(servertest.Action{})
		servertest.Pass(health.RecoveryDelay)
		mustCount(t, a, "alone")
		sent, r := len(s.Received()), together(a, b)
		b.first().Allows(b.office.conn.Elapsed()) // another probe is in flight
		a.Do(t.Context(), a.Timeout, r)
		wantError(t, "held back", r.Err, health.ErrOutage)
		wantEqual(t, "sent", len(s.Received()), sent)
		servertest.Pass(health.RecoveryDelay)
		r = together(a, b)
		a.Do(t.Context(), a.Timeout, r)
		wantError(t, "probe", r.Err, nil)
		wantEqual(t, "open", b.first().IsOpen(), false)
	})
}

// TestJointRefused checks that if a server refuses a request because it has several keys, no
// circuit breaker counts that. While a slot is moving, the request is sent again, for a quarter of
// the timeout.
func TestJointRefused(t *testing.T) {
	for reply, most := range map[string]time.Duration{
		"TRYAGAIN Multiple keys request during rehashing of slot":                         250 * time.Millisecond,
		"NOPERM this user has no permissions to access one of the keys used as arguments": 0,
		"CROSSSLOT Keys in request don't hash to the same slot":                           0,
	} {
		onTwoLines(t, func(t *testing.T, s *servertest.Server, a, b *line) {
			s.Always(servertest.Refusal(reply))
			for range 3 { // as many failures as open a circuit breaker
				began, r := time.Now(), together(a, b)
				a.Do(t.Context(), a.Timeout, r)
				wantEqual(t, reply, r.IsApart(), true)
				if took := time.Since(began); took > most || took < most/2 {
					t.Errorf("%s: took %v", reply, took)
				}
			}
			wantEqual(t, "open", a.first().IsOpen() || b.first().IsOpen(), false)
		})
	}
}

// TestUse checks that keys are in use until they are released.
func TestUse(t *testing.T) {
	onTwoLines(t, func(t *testing.T, _ *servertest.Server, a, b *line) {
		first, release := a.Use([]string{"x", "y"})
		second, releaseSecond := b.Use([]string{"y", "z"})
		third, releaseThird := b.Use([]string{"z"})
		wantEqual(t, "alone", []bool{first, second, third}, []bool{true, false, false})
		release()
		releaseSecond()
		releaseThird()
		wantEqual(t, "keys in use", len(a.office.uses.of), 0)
	})
}

// TestJointProbesTogether checks that if the circuit breakers of two limiters opened at different
// times, a request for keys of both limiters probes both breakers as soon as probes of both are
// due.
func TestJointProbesTogether(t *testing.T) {
	onTwoLines(t, func(t *testing.T, s *servertest.Server, a, b *line) {
		breakShard(t, s, a, "e")
		servertest.Pass(600 * time.Millisecond)
		breakShard(t, s, b, "e")
		began := time.Now()
		for {
			r := together(a, b)
			if a.Do(t.Context(), a.Timeout, r); r.Err == nil {
				break
			}
			servertest.Pass(10 * time.Millisecond)
		}
		wantEqual(t, "after", time.Since(began), health.RecoveryDelay)
		wantEqual(t, "open", a.first().IsOpen() || b.first().IsOpen(), false)
	})
}

// TestJointUnsent checks that a request for several keys that was not sent is not repeated, because
// the next connection may lead to another server.
func TestJointUnsent(t *testing.T) {
	onTwoLines(t, func(t *testing.T, s *servertest.Server, a, b *line) {
		mustCount(t, a, "before")
		s.Die()
		servertest.Pass(time.Second)
		began, r := time.Now(), together(a, b)
		a.Do(t.Context(), a.Timeout, r)
		wantError(t, "unsent", r.Err, health.ErrOutage)
		wantEqual(t, "apart", r.IsApart(), true)
		wantEqual(t, "took", time.Since(began), 0)
	})
}
