package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/servertest"
)

// wantAnswers checks that the callers in got have the same answers as those in want.
func wantAnswers(t *testing.T, got, want []*caller) {
	t.Helper()
	for i := range want {
		wantError(t, fmt.Sprint("caller ", i), got[i].err, want[i].err)
		wantEqual(t, fmt.Sprint("caller ", i), got[i].Reply, want[i].Reply)
	}
}

// TestMergedAttempts checks that 64 callers with the same event share one script call, and that
// each of them gets the answer that it would get if they called one after another in order of
// arrival.
func TestMergedAttempts(t *testing.T) {
	forEachMerging(t, func(t *testing.T, verb string, s *servertest.Server, l *Limiter) {
		queries := slices.Repeat([]query{{Allow, "hot", 1}}, 64)
		got := batched(t, s, l, queries)
		calls := onEvent(l, s.Ran(), "hot")
		wantEqual(t, "script calls", len(calls), 1)
		wantEqual(t, "verb", calls[0].Verb, verb)
		wantEqual(t, "attempts", calls[0].Units, 64)
		wantAnswers(t, got, sequential(t, l, queries))
	})
}

// TestOrderOfArrival checks that each caller gets the answer that it would get if all called one
// after another. They request random numbers of units of one event or of several. Calls for several
// events include merged attempts, if the verb takes several keys.
func TestOrderOfArrival(t *testing.T) {
	merged := map[string]int{} // calls for several events that include merged attempts, by verb
	for seed := range uint64(8) {
		forEachMerging(t, func(t *testing.T, verb string, s *servertest.Server, l *Limiter) {
			rng := rand.New(rand.NewPCG(seed, 1))
			s.SetKeys(servertest.Keys(seed % 2))
			batched(t, s, l, []query{{Allow, "x", 1}, {Allow, "y", 1}}) // starts a proof
			synctest.Wait()
			queries := randomQueries(rng, 3, Allow, Allow, Allow, Allow, Allow, Some, Count, Peek, Wait)
			if seed >= 4 {
				queries = randomQueries(rng, 16, Allow, Allow, Allow, Wait, Allow, Allow, Allow, Some)
			}
			s.ClearCalls()
			got := batched(t, s, l, queries)
			wantAnswers(t, got, sequential(t, l, queries))
			for _, c := range s.Ran() {
				if len(c.More) > 0 && c.Verb == verb && slices.ContainsFunc(append(c.More, c), func(key servertest.Command) bool { return key.Units > 2 }) {
					merged[verb]++
				}
			}
		})
	}
	if len(merged) != 1 || merged[string(Some)] == 0 {
		t.Errorf("calls for several events that include merged attempts: %v", merged)
	}
}

// randomQueries returns a hundred queries of random verbs, for one or two units of random events.
func randomQueries(rng *rand.Rand, events int, verbs ...Verb) (queries []query) {
	for range 100 {
		queries = append(queries, query{verbs[rng.IntN(len(verbs))], fmt.Sprint(rng.IntN(events)), 1 + int64(rng.IntN(20)/19)})
	}
	return queries
}

// TestOnlyAttemptsOfOneUnitMerge checks that every request other than an attempt for one unit has
// its own script call.
func TestOnlyAttemptsOfOneUnitMerge(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t))
		queries := slices.Repeat([]query{{Allow, "a", 2}, {Count, "b", 3}, {Peek, "c", 1}, {Allow, "d", 1}, {Count, "e", 1}}, 4)
		batched(t, s, l, queries)
		for event, want := range map[string]int{"a": 4, "b": 4, "c": 4, "d": 1, "e": 1} {
			wantEqual(t, event, len(onEvent(l, s.Ran(), event)), want)
		}
	})
}

// TestTimesDoNotMerge checks that attempts at different times, according to Config.Now, do not
// merge, and that attempts at the same time do.
func TestTimesDoNotMerge(t *testing.T) {
	servertest.OnFakeTime(t, func(t *testing.T, s *servertest.Server) {
		l := limiter(t, s.Client(t), func(c *Config) { c.Clock.Now = time.Now })
		occupySenders(t, s, l)
		var callers []*caller
		for range 4 {
			for range 3 {
				callers = append(callers, arrive(t.Context(), l, Allow, "hot", 1))
			}
			servertest.Pass(time.Millisecond)
		}
		s.Release()
		for i, c := range callers {
			wantError(t, "hot", c.wait().err, nil)
			wantEqual(t, "at", c.At, callers[0].At+int64(i/3))
		}
		wantEqual(t, "script calls", len(onEvent(l, s.Ran(), "hot")), 4)
	})
}

// TestLostReplyToMergedAttempts checks that if the reply is lost, all merged attempts are uncertain
// and were executed at most once.
func TestLostReplyToMergedAttempts(t *testing.T) {
	for _, f := range []servertest.Action{{Lose: true}, {Cut: true}} {
		forEachMerging(t, func(t *testing.T, _ string, s *servertest.Server, l *Limiter) {
			hot := l.Key("hot")
			s.Choose(func(c servertest.Command) servertest.Action {
				if c.Key == hot {
					return f
				}
				return servertest.Action{}
			})
			for _, c := range batched(t, s, l, slices.Repeat([]query{{Allow, "hot", 1}}, 64)) {
				wantError(t, "hot", c.err, health.ErrUncertain)
			}
			want := 0
			if f.Lose {
				want = 64
			}
			wantEqual(t, "executed", s.Counter(hot).Attempts, want)
		})
	}
}

// TestLeaversOfMergedAttempts checks that callers that leave before the batch is built are not
// counted, and that callers that leave later are, so that the answers to the other callers include
// them.
func TestLeaversOfMergedAttempts(t *testing.T) {
	forEachMerging(t, func(t *testing.T, _ string, s *servertest.Server, l *Limiter) {
		occupySenders(t, s, l)
		hot := l.Key("hot")
		s.Choose(func(c servertest.Command) servertest.Action {
			if c.Key == hot {
				return servertest.Action{Delay: 10 * time.Millisecond}
			}
			return servertest.Action{}
		})
		early, leaveEarly := context.WithCancel(t.Context())
		late, leaveLate := context.WithCancel(t.Context())
		var callers []*caller
		for i := range 18 {
			callers = append(callers, arrive([]context.Context{early, late, t.Context()}[i%3], l, Allow, "hot", 1))
		}
		defer leaveLate()
		leaveEarly()
		synctest.Wait()
		s.Release()
		servertest.Pass(5 * time.Millisecond)
		leaveLate()
		used := int64(0)
		for i, c := range callers {
			c.wait()
			switch i % 3 {
			case 0:
				wantError(t, "early", c.err, early.Err())
			case 1:
				wantError(t, "late", c.err, health.ErrUncertain)
				used++
			case 2:
				wantError(t, "stayed", c.err, nil)
				used++
				wantEqual(t, "allowed", c.Allowed, used <= 5)
			}
		}
		wantEqual(t, "executed", s.Counter(hot).Attempts, 12)
	})
}
