package send

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
	"github.com/slidegate/slidegate/lua"
)

// prove makes the server accept calls for several keys, and returns once it is proved that it has
// all keys.
func prove(t *testing.T, s *servertest.Server, l *line) {
	t.Helper()
	s.SetKeys(servertest.AllKeys)
	askTogether(t, s, l, []string{"x", "y", "z"})
	synctest.Wait()
	s.ClearCalls()
}

// askTogether makes a request for one unit of each event, all in one batch.
func askTogether(t *testing.T, s *servertest.Server, l *line, events []string) (callers []*attempt) {
	t.Helper()
	occupiers := occupySenders(t, s, l)
	for _, event := range events {
		callers = append(callers, arrive(t.Context(), l, event))
	}
	s.Release()
	for _, c := range append(callers, occupiers...) {
		c.wait()
	}
	return callers
}

// sizes returns the number of keys in each of the last n script calls.
func sizes(s *servertest.Server, n int) (all []int) {
	received := s.Received()
	for _, c := range received[max(0, len(received)-n):] {
		all = append(all, 1+len(c.More))
	}
	return all
}

// onProvedServer runs test, with fake time, with a line for which it is proved that one server has
// all keys.
func onProvedServer(t *testing.T, test func(t *testing.T, s *servertest.Server, l *line)) {
	t.Helper()
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := newLine(t, s.Client(t))
		prove(t, s, l)
		test(t, s, l)
	})
}

// TestEventsShareACall checks that up to maxParts events in a batch share one script call, and that
// each caller gets the reply for its own event.
func TestEventsShareACall(t *testing.T) {
	onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
		events := numbered(maxParts + 1)
		for i, event := range events {
			for range i % 5 {
				mustCount(t, l, event)
			}
		}
		before := s.Executed()
		for i, c := range askTogether(t, s, l, events) {
			wantError(t, events[i], c.err, nil)
			wantEqual(t, events[i], c.count, int64(i%5+1))
		}
		wantEqual(t, "keys of the calls", sizes(s, 2), []int{maxParts, 1})
		wantEqual(t, "executed", s.Executed()-before, maxSenders+len(events))
	})
}

// TestOthersShareNoCall checks which requests do not share a script call: those with another
// script, verb, time or group, those without a group, and those for the same key that do not merge.
// The latter must stay in order.
func TestOthersShareNoCall(t *testing.T) {
	onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
		other := lua.New("return 'another script'")
		changes := map[string]func(r *Request){
			"script":   func(r *Request) { r.Script = other },
			"verb":     func(r *Request) { r.Verb = "reset" },
			"time":     func(r *Request) { r.Time = "1" },
			"group":    func(r *Request) { r.Group = "other units" },
			"no group": func(r *Request) { r.Group = "" },
		}
		requests := []*Request{l.request("a"), l.request("b")}
		for name, change := range changes {
			r := l.request(name)
			change(r)
			requests = append(requests, r)
		}
		for range 3 { // the first two merge
			requests = append(requests, l.request("one key"))
		}
		requests[len(requests)-1].Merge = Merge{}
		askInOneBatch(t, s, l, requests)
		var together []string
		byKey := map[string][]int64{}
		for _, c := range s.Received()[maxSenders:] {
			if len(c.More) > 0 {
				together = append(together, c.Key, c.More[0].Key)
			}
			byKey[c.Key] = append(byKey[c.Key], c.Units)
		}
		wantEqual(t, "together", together, []string{l.Key("a"), l.Key("b")})
		wantEqual(t, "units of one key", byKey[l.Key("one key")], []int64{2, 1})
	})
}

// TestMergesShareACall checks which merged requests share a script call with requests for other
// keys, and that the call has the script and the verb of their Merge. All requests in a call must
// have a Merge, and its verb must take several keys.
func TestMergesShareACall(t *testing.T) {
	for oneKey, want := range map[bool][]string{
		false: {"some A1 B2 C3 E1", "allow D2"},
		true:  {"allow A1 D2 E1", "some B2", "some C3"},
	} {
		onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
			scripts := map[string]*lua.Script{"allow": lua.New("return 'allow'"), "some": lua.New("return 'some'")}
			var requests []*Request
			for _, event := range []string{"A", "B", "C", "B", "D", "C", "C", "E"} {
				r := l.request(event)
				r.Script, r.Verb, r.Rest = scripts["allow"], "allow", []string{"60000", "5"}
				if r.Merge = (Merge{"some", scripts["some"], oneKey}); event == "D" {
					r.Units, r.Merge = 2, Merge{}
				}
				requests = append(requests, r)
			}
			s.ForgetScripts()
			askInOneBatch(t, s, l, requests)
			var got []string
			for _, c := range s.Ran() {
				if c.Verb == servertest.Tally { // of an occupier
					continue
				}
				parts := []string{c.Verb}
				for _, key := range append([]servertest.Command{c}, c.More...) {
					parts = append(parts, fmt.Sprint(strings.Trim(key.Key, "tes:{}"), key.Units))
				}
				call := strings.Join(parts, " ")
				got = append(got, call)
				if c.Script != scripts[c.Verb].Hash && c.Script != scripts[c.Verb].Source {
					t.Errorf("%s has the script %s", call, c.Script)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			wantEqual(t, fmt.Sprint("calls, one key: ", oneKey), got, want)
		})
	}
}

// askInOneBatch sends the requests in one batch, in order, by making them arrive while all senders
// are occupied.
func askInOneBatch(t *testing.T, s *servertest.Server, l *line, requests []*Request) {
	t.Helper()
	occupySenders(t, s, l)
	var callers sync.WaitGroup
	for _, r := range requests {
		callers.Go(func() { l.Do(t.Context(), l.Timeout, r) })
		synctest.Wait()
	}
	s.Release()
	callers.Wait()
}

// TestFailingEvent checks that if an event in a script call fails, its caller gets the string in
// the reply as the script's error, and the other callers get their replies.
func TestFailingEvent(t *testing.T) {
	onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
		s.Choose(func(c servertest.Command) servertest.Action {
			if len(c.More) == 0 {
				return servertest.Action{}
			}
			return servertest.Action{Reply: "*3\r\n:7\r\n$26\r\nWRONGTYPE key holds a list\r\n:9"}
		})
		callers := askTogether(t, s, l, numbered(3))
		wantEqual(t, "counts", []int64{callers[0].count, callers[2].count}, []int64{7, 9})
		if err := callers[1].err; err == nil || err.Error() != "WRONGTYPE key holds a list" {
			t.Error(err)
		}
	})
}

// TestStrangeReplies checks how replies that none of our scripts would send to a call for several
// keys are handled.
func TestStrangeReplies(t *testing.T) {
	for reply, errs := range map[string][3]error{
		"*0":                                     {health.ErrUncertain, health.ErrUncertain, health.ErrUncertain},
		"*4\r\n:1\r\n:1\r\n:1\r\n:1":             {health.ErrUncertain, health.ErrUncertain, health.ErrUncertain},
		"*3\r\n:1\r\n_\r\n:1":                    {health.ErrUncertain, health.ErrUncertain, health.ErrUncertain},
		"*6\r\n:1\r\n:1\r\n:1\r\n+a\r\n:1\r\n:1": {nil, health.ErrUncertain, nil},
		"+OK":                                    {health.ErrUncertain, health.ErrUncertain, health.ErrUncertain},
		"-ERR broken":                            {health.ErrOutage, health.ErrOutage, health.ErrOutage},
	} {
		onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
			s.Choose(func(c servertest.Command) servertest.Action {
				if len(c.More) == 0 {
					return servertest.Action{}
				}
				return servertest.Action{Reply: reply}
			})
			for i, c := range askTogether(t, s, l, numbered(3)) {
				wantError(t, fmt.Sprintf("%q, event %d", reply, i), c.err, errs[i])
			}
		})
	}
}

// TestRefusedKeys checks that if a server refuses a call for several keys, the keys are immediately
// sent in separate calls, and later keys too. Attempts on the same key stay merged.
func TestRefusedKeys(t *testing.T) {
	for _, refusal := range []string{"CROSSSLOT Keys in request don't hash to the same slot", "NOPERM this user has no permissions to access one of the keys"} {
		onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
			s.Choose(func(c servertest.Command) servertest.Action {
				if len(c.More) == 0 {
					return servertest.Action{}
				}
				return servertest.Refusal(refusal)
			})
			for i, c := range askTogether(t, s, l, append(numbered(3), "event 1")) {
				wantError(t, fmt.Sprint(i), c.err, nil)
				wantEqual(t, "count", c.count, int64(1+i/3))
				wantEqual(t, "took", c.took, 0)
			}
			wantEqual(t, "keys of the calls", sizes(s, 4), []int{3, 1, 1, 1})
			askTogether(t, s, l, numbered(3))
			wantEqual(t, "keys of later calls", sizes(s, 3), []int{1, 1, 1})
		})
	}
}

// TestCertainRepliesDoNotWait checks that callers get their replies before other calls in the batch
// are sent again, for each key separately or with the script's source. If the server hangs during
// those calls, the outcome is uncertain only for their callers.
func TestCertainRepliesDoNotWait(t *testing.T) {
	for _, refusal := range []string{"NOPERM", "NOSCRIPT"} {
		onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
			other := beside(l, l.Timeout)
			occupySenders(t, s, l)
			arrive(t.Context(), other, "occupier") // a fifth sender, since two limiters have requests
			a, b, kept := arrive(t.Context(), l, "a"), arrive(t.Context(), l, "b"), arrive(t.Context(), other, "kept")
			refused := false
			s.Choose(func(c servertest.Command) servertest.Action {
				switch {
				case c.Key == l.Key("a") && !refused:
					refused = true
					return servertest.Refusal(refusal)
				case c.Key == l.Key("a"):
					return servertest.Action{Hang: true}
				}
				return servertest.Action{}
			})
			s.Release()
			wantError(t, refusal+", kept", kept.wait().err, nil)
			wantEqual(t, refusal+", took", kept.took, 0)
			wantError(t, refusal+", a", a.wait().err, health.ErrUncertain)
			wantError(t, refusal+", b", b.wait().err, health.ErrUncertain)
		})
	}
}

// TestGroupOfUnknownScript checks that if the server does not know the script, the same call for
// several keys is sent again once, with the source.
func TestGroupOfUnknownScript(t *testing.T) {
	onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
		s.Choose(func(c servertest.Command) servertest.Action {
			return servertest.Action{Forget: len(c.More) > 0 && c.Name == "EVALSHA"}
		})
		for i, c := range askTogether(t, s, l, numbered(3)) {
			wantError(t, fmt.Sprint(i), c.err, nil)
		}
		wantEqual(t, "keys of the calls", sizes(s, 2), []int{3, 3})
		wantEqual(t, "commands", strings.Fields(names(s.Received()))[maxSenders:], []string{"EVALSHA", "EVAL"})
	})
}

// TestOneOfAGroupLeaves checks that a caller that leaves while a call for several keys is in flight
// gets ErrUncertain, and that the other callers get their answers.
func TestOneOfAGroupLeaves(t *testing.T) {
	onProvedServer(t, func(t *testing.T, s *servertest.Server, l *line) {
		occupySenders(t, s, l)
		ctx, leave := context.WithCancel(t.Context())
		leaves, stays, other := arrive(ctx, l, "leaves"), arrive(t.Context(), l, "stays"), arrive(t.Context(), l, "other")
		s.Choose(func(c servertest.Command) servertest.Action {
			if len(c.More) > 0 {
				leave()
				leaves.wait()
			}
			return servertest.Action{}
		})
		s.Release()
		wantError(t, "leaves", leaves.wait().err, health.ErrUncertain)
		if !errors.Is(leaves.err, context.Canceled) {
			t.Error(leaves.err)
		}
		wantError(t, "stays", stays.wait().err, nil)
		wantError(t, "other", other.wait().err, nil)
		wantEqual(t, "keys of the call", sizes(s, 1), []int{3})
	})
}

// TestNoGroupsOnACluster checks that on a cluster, each script call is for a single key.
func TestNoGroupsOnACluster(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, _ *servertest.Server) {
		nodes := servertest.NewCluster(2)
		l := newLine(t, servertest.ClusterClient(t, nodes))
		for _, node := range nodes {
			node.SetKeys(servertest.AllKeys)
		}
		for range 3 {
			askMany(t.Context(), l, numbered(300))
		}
		for _, node := range nodes {
			for _, size := range sizes(node, 1000) {
				wantEqual(t, "keys of a call", size, 1)
			}
		}
	})
}
