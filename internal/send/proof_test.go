package send

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// askGrouped makes requests for three events at once, and reports whether they shared a script
// call.
func askGrouped(t *testing.T, s *servertest.Server, l *line) bool {
	t.Helper()
	for _, c := range askTogether(t, s, l, []string{"a", "b", "c"}) {
		wantError(t, "an event", c.err, nil)
	}
	synctest.Wait() // until a proof has ended
	return slices.ContainsFunc(sizes(s, 3), func(size int) bool { return size == 3 })
}

// TestProofOnlyForGroups checks that neither single callers nor requests without a group start a
// proof.
func TestProofOnlyForGroups(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		s.SetKeys(servertest.AllKeys)
		for range 3 {
			mustCount(t, l, "alone")
		}
		requests := make([]*Request, 5)
		for i := range requests {
			requests[i] = l.request(fmt.Sprint(i))
			requests[i].Group = ""
		}
		askInOneBatch(t, s, l, requests)
		synctest.Wait()
		wantEqual(t, "proofs", len(s.Proofs()), 0)
	})
}

// TestProofIsRenewed checks that events share a call only after a proof, which is renewed after 10
// s, and which no longer holds if it has not been renewed within 20 s.
func TestProofIsRenewed(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		s.SetKeys(servertest.AllKeys)
		for i, step := range []struct {
			after  time.Duration
			shared bool
			proofs []int
		}{
			{0, false, []int{firstProbes}},
			{0, true, []int{firstProbes}},
			{proofRenewal - time.Millisecond, true, []int{firstProbes}},
			{time.Millisecond, true, []int{firstProbes, renewalProbes}},
			{2*proofRenewal - time.Millisecond, true, []int{firstProbes, renewalProbes, renewalProbes}},
			{2 * proofRenewal, false, []int{firstProbes, renewalProbes, renewalProbes, firstProbes}},
			{0, true, []int{firstProbes, renewalProbes, renewalProbes, firstProbes}},
		} {
			servertest.Pass(step.after)
			wantEqual(t, fmt.Sprint("shared in step ", i), askGrouped(t, s, l), step.shared)
			wantEqual(t, fmt.Sprint("proofs in step ", i), s.Proofs(), step.proofs)
		}
	})
}

// TestProofFails checks that while keys are distributed over servers, or the server refuses calls
// for two keys, events do not share a call, and that proofs become less frequent. If a renewal
// fails, events no longer share a call.
func TestProofFails(t *testing.T) {
	for _, keys := range []servertest.Keys{servertest.OneKey, servertest.Divided} {
		onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
			if s.SetKeys(keys); keys == servertest.Divided {
				servertest.Pass(proofRenewal)
				wantEqual(t, "shared, by the old proof", askGrouped(t, s, l), true)
			} else {
				askTogether(t, s, l, []string{"a", "b", "c"}) // refused, and then sent in separate calls
			}
			began, known := time.Now(), len(s.Proofs())
			var proofs []float64
			for range 400 {
				servertest.Pass(500 * time.Millisecond)
				wantEqual(t, "shared", askGrouped(t, s, l), false)
				if n := len(s.Proofs()); n > known {
					known = n
					proofs = append(proofs, time.Since(began).Seconds())
				}
			}
			wantEqual(t, "seconds of the proofs", proofs, []float64{1, 3, 7, 15, 31, 63, 123, 183})
			wantEqual(t, "keys of the last", s.Proofs()[known-1], firstProbes)
			s.SetKeys(servertest.AllKeys)
			servertest.Pass(maxProofPause)
			askGrouped(t, s, l)
			wantEqual(t, "shared at the end", askGrouped(t, s, l), true)
		})
	}
}

// TestErrorEndsProof checks that after a call without a reply, events do not share a call until
// there is a new proof. An error reply does not end a proof.
func TestErrorEndsProof(t *testing.T) {
	for _, test := range []struct {
		action servertest.Action
		ends   bool
	}{
		{servertest.Action{Cut: true}, true},
		{servertest.Action{Lose: true}, true},
		{servertest.Refusal("ERR broken"), false},
		{servertest.Refusal("WRONGTYPE key"), false},
		{servertest.Refusal("NOPERM"), false},
	} {
		onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
			s.Next(test.action)
			askOne(t, l, "an event")
			wantEqual(t, fmt.Sprint("shared after ", test.action), askGrouped(t, s, l), !test.ends)
			servertest.Pass(minProofPause)
			askGrouped(t, s, l)
			wantEqual(t, "shared later", askGrouped(t, s, l), true)
		})
	}
}

// TestProofIsOfOneLimiter checks that a limiter's proof does not hold for another limiter on the
// same Connection, and that the events of two limiters do not share a call, because a proxy may
// send them to two servers.
func TestProofIsOfOneLimiter(t *testing.T) {
	onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
		other := beside(l, l.Timeout)
		wantEqual(t, "shared, without a proof", askGrouped(t, s, other), false)
		wantEqual(t, "proofs", s.Proofs(), []int{firstProbes, firstProbes})
		wantEqual(t, "shared, with one", askGrouped(t, s, other), true)
		occupySenders(t, s, l)
		arrive(t.Context(), other, "occupier") // a fifth sender, since two limiters have requests
		s.ClearCalls()
		var callers []*attempt
		for i := range 6 {
			callers = append(callers, arrive(t.Context(), []*line{l, other}[i%2], fmt.Sprint(i)))
		}
		s.Release()
		for _, c := range callers {
			wantError(t, "an event", c.wait().err, nil)
		}
		wantEqual(t, "keys of the calls", sizes(s, 10), []int{3, 3})
	})
}

// TestErrorVoidsProof checks that a proof does not count if a connection broke during the attempt,
// because the proof may concern another server.
func TestErrorVoidsProof(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		s.SetKeys(servertest.AllKeys)
		l.use().proof.holds()
		(&scriptCall{ScriptCall: connection.ScriptCall{Err: io.EOF}}).noteLoss(l.office)
		synctest.Wait()
		wantEqual(t, "proved", l.use().proof.holds(), false)
		servertest.Pass(minProofPause)
		l.use().proof.holds()
		synctest.Wait()
		wantEqual(t, "proved later", l.use().proof.holds(), true)
	})
}
