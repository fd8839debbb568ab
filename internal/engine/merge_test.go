package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// mergings are the ways in which attempts merge.
var mergings = []struct {
	verb   string
	change func(*Config)
}{
	{string(Some), func(*Config) {}},
	{verbEach, func(c *Config) { c.MergeAsSome = false }},
	{verbCountEach, func(c *Config) { c.CountDenied = true }},
}

// eachMerging runs a test for each way in which attempts merge.
func eachMerging(t *testing.T, test func(t *testing.T, verb string, s *server, l *Limiter)) {
	t.Helper()
	for _, m := range mergings {
		t.Run(m.verb, func(t *testing.T) {
			onFakeTime(t, func(t *testing.T, s *server) { test(t, m.verb, s, limiter(t, s.client(t), m.change)) })
		})
	}
}

// An order is what a caller asks for.
type order struct {
	verb  Verb
	event string
	n     int64
}

// together makes callers wait in this order for one sender, and returns their answers.
func together(t *testing.T, s *server, l *Limiter, orders []order) (callers []*caller) {
	t.Helper()
	occupySenders(t, s, l)
	for _, o := range orders {
		callers = append(callers, arrive(t.Context(), l, o.verb, o.event, o.n))
	}
	s.release()
	for _, c := range callers {
		c.wait()
	}
	return callers
}

// oneByOne returns the answers that another server gives to the callers one after the other.
func oneByOne(t *testing.T, l *Limiter, orders []order) (callers []*caller) {
	t.Helper()
	l = limiter(t, newServer().client(t), func(c *Config) { c.CountDenied = l.CountDenied })
	for _, o := range orders {
		callers = append(callers, ask(t.Context(), l, o.verb, o.event, o.n))
	}
	return callers
}

// wantAnswers checks that callers got the same answers as others.
func wantAnswers(t *testing.T, got, want []*caller) {
	t.Helper()
	for i := range want {
		wantError(t, fmt.Sprint("caller ", i), got[i].err, want[i].err)
		wantEqual(t, fmt.Sprint("caller ", i), got[i].Reply, want[i].Reply)
	}
}

// TestMergedAttempts checks that 64 callers on one event make one script call. Each gets the answer that it would get one after the other, in
// order of arrival.
func TestMergedAttempts(t *testing.T) {
	eachMerging(t, func(t *testing.T, verb string, s *server, l *Limiter) {
		orders := slices.Repeat([]order{{l.Attempt(), "hot", 1}}, 64)
		got := together(t, s, l, orders)
		calls := onEvent(l, s.scriptCalls(), "hot")
		wantEqual(t, "script calls", len(calls), 1)
		wantEqual(t, "verb", calls[0].verb, verb)
		wantEqual(t, "attempts", calls[0].n, 64)
		wantAnswers(t, got, oneByOne(t, l, orders))
	})
}

// TestMergedAttemptsOnAnEventInUse checks that the same after 1 to 6 units of 5.
func TestMergedAttemptsOnAnEventInUse(t *testing.T) {
	for used := range 6 {
		eachMerging(t, func(t *testing.T, _ string, s *server, l *Limiter) {
			before := slices.Repeat([]order{{l.Attempt(), "hot", 1}}, used+1)
			for _, o := range before {
				ask(t.Context(), l, o.verb, o.event, o.n)
			}
			orders := slices.Repeat([]order{{l.Attempt(), "hot", 1}}, crowd)
			got := together(t, s, l, orders)
			wantAnswers(t, got, oneByOne(t, l, append(before, orders...))[used+1:])
		})
	}
}

// TestOrderOfArrival checks that whatever callers ask for, on one event or several, each gets the answer as if they came one after the other.
func TestOrderOfArrival(t *testing.T) {
	for seed := range uint64(4) {
		eachMerging(t, func(t *testing.T, _ string, s *server, l *Limiter) {
			rng := rand.New(rand.NewPCG(seed, 1))
			verbs := []Verb{l.Attempt(), l.Attempt(), l.Attempt(), l.Attempt(), Allow, Count, Peek, Wait}
			var orders []order
			for range 60 {
				orders = append(orders, order{verbs[rng.IntN(len(verbs))], fmt.Sprint(rng.IntN(3)), 1 + int64(rng.IntN(10)/8)})
			}
			got := together(t, s, l, orders)
			wantAnswers(t, got, oneByOne(t, l, orders))
		})
	}
}

// TestOnlyAttemptsOfOneUnitMerge checks that everything else is a script call of its own.
func TestOnlyAttemptsOfOneUnitMerge(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t))
		orders := slices.Repeat([]order{{Allow, "a", 2}, {Count, "b", 3}, {Peek, "c", 1}, {Allow, "d", 1}, {Count, "e", 1}}, 4)
		together(t, s, l, orders)
		for event, want := range map[string]int{"a": 4, "b": 4, "c": 4, "d": 1, "e": 1} {
			wantEqual(t, event, len(onEvent(l, s.scriptCalls(), event)), want)
		}
	})
}

// TestTimesDoNotMerge checks that attempts at different times of Config.Now do not merge, those at the same time do.
func TestTimesDoNotMerge(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t), func(c *Config) { c.Clock.Now = time.Now })
		occupySenders(t, s, l)
		var callers []*caller
		for range 4 {
			for range 3 {
				callers = append(callers, arrive(t.Context(), l, Allow, "hot", 1))
			}
			pass(time.Millisecond)
		}
		s.release()
		for i, c := range callers {
			wantError(t, "hot", c.wait().err, nil)
			wantEqual(t, "at", c.At, callers[0].At+int64(i/3))
		}
		wantEqual(t, "script calls", len(onEvent(l, s.scriptCalls(), "hot")), 4)
	})
}

// TestLostReplyToMergedAttempts checks that all of them are uncertain, and they are executed once or not at all.
func TestLostReplyToMergedAttempts(t *testing.T) {
	for _, f := range []fate{{lose: true}, {cut: true}} {
		eachMerging(t, func(t *testing.T, _ string, s *server, l *Limiter) {
			hot := l.Key("hot")
			s.judgeBy(func(c command) fate {
				if c.key == hot {
					return f
				}
				return fate{}
			})
			for _, c := range together(t, s, l, slices.Repeat([]order{{l.Attempt(), "hot", 1}}, 64)) {
				wantError(t, "hot", c.err, ErrUncertain)
			}
			want := 0
			if f.lose {
				want = 64
			}
			wantEqual(t, "executed", s.counter(hot).attempts, want)
		})
	}
}

// TestLeaversOfMergedAttempts checks that those who leave before the batch is built do not count. Those who leave later do, and the answers of
// the others allow for them.
func TestLeaversOfMergedAttempts(t *testing.T) {
	eachMerging(t, func(t *testing.T, _ string, s *server, l *Limiter) {
		occupySenders(t, s, l)
		hot := l.Key("hot")
		s.judgeBy(func(c command) fate {
			if c.key == hot {
				return fate{delay: 10 * time.Millisecond}
			}
			return fate{}
		})
		early, leaveEarly := context.WithCancel(t.Context())
		late, leaveLate := context.WithCancel(t.Context())
		var callers []*caller
		for i := range 18 {
			callers = append(callers, arrive([]context.Context{early, late, t.Context()}[i%3], l, l.Attempt(), "hot", 1))
		}
		defer leaveLate()
		leaveEarly()
		synctest.Wait()
		s.release()
		pass(5 * time.Millisecond)
		leaveLate()
		used := int64(0)
		for i, c := range callers {
			c.wait()
			switch i % 3 {
			case 0:
				wantError(t, "early", c.err, early.Err())
			case 1:
				wantError(t, "late", c.err, ErrUncertain)
				used++
			case 2:
				wantError(t, "stayed", c.err, nil)
				used++
				wantEqual(t, "allowed", c.Allowed, used <= 5)
			}
		}
		wantEqual(t, "executed", s.counter(hot).attempts, 12)
	})
}

// TestEachJoinsOthers checks that attempts of AllowEach merge with those of other callers on the same event.
func TestEachJoinsOthers(t *testing.T) {
	eachMerging(t, func(t *testing.T, _ string, s *server, l *Limiter) {
		occupySenders(t, s, l)
		first := arrive(t.Context(), l, l.Attempt(), "hot", 1)
		each := startEach(t.Context(), l, slices.Concat(slices.Repeat([]string{"hot", "cold"}, 4), fillers(crowd)))
		synctest.Wait()
		last := arrive(t.Context(), l, l.Attempt(), "hot", 1)
		s.release()
		answers := each.wait().answers
		got := []Reply{first.wait().Reply, answers[0].Reply, answers[2].Reply, answers[4].Reply, answers[6].Reply, last.wait().Reply}
		for i, c := range oneByOne(t, l, slices.Repeat([]order{{l.Attempt(), "hot", 1}}, 6)) {
			wantEqual(t, fmt.Sprint("hot ", i), got[i], c.Reply)
		}
		for i, c := range oneByOne(t, l, slices.Repeat([]order{{l.Attempt(), "cold", 1}}, 4)) {
			wantEqual(t, fmt.Sprint("cold ", i), answers[2*i+1].Reply, c.Reply)
		}
		wantEqual(t, "script calls", len(onEvent(l, s.scriptCalls(), "hot")), 1)
	})
}

// TestManyMergedAttempts checks that one script call takes at most 4096 attempts.
func TestManyMergedAttempts(t *testing.T) {
	onFakeTime(t, func(t *testing.T, s *server) {
		l := limiter(t, s.client(t), func(c *Config) { c.MergeAsSome = false })
		occupySenders(t, s, l)
		big := startEach(t.Context(), l, append(slices.Repeat([]string{"hot"}, maxAttempts-1), fillers(1)...))
		synctest.Wait()
		small := startEach(t.Context(), l, append([]string{"hot", "hot"}, fillers(crowd)...))
		synctest.Wait()
		last := arrive(t.Context(), l, Allow, "hot", 1)
		s.release()
		for i, a := range append(big.wait().answers[:maxAttempts-1], small.wait().answers[:2]...) {
			wantEqual(t, fmt.Sprint("attempt ", i, " is allowed"), a.Allowed, i < 5)
		}
		wantError(t, "the last", last.wait().err, nil)
		calls := onEvent(l, s.scriptCalls(), "hot")
		wantEqual(t, "script calls", len(calls), 2)
		wantEqual(t, "attempts of the first", calls[0].n, maxAttempts-1)
		wantEqual(t, "attempts of the second", calls[1].n, 3)
	})
}
