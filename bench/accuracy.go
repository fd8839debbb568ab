package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// accuracy says whether a contender keeps its limit, under attacks that know the algorithms, in real
// time.
type accuracy struct {
	Name     string  `json:"name"`
	Most     float64 `json:"most"`     // the most units in a span of Per, over Max
	Denied   int     `json:"denied"`   // attempts of a random flow
	Needless int     `json:"needless"` // how many of these had fewer than Max in the Per before

	Waits bool          `json:"waits"`           // whether it returns how long to wait
	Wrong time.Duration `json:"wrong,omitempty"` // the largest error of that, in ns
}

// attacked is the limit of the attacks: short, so that they take seconds.
var attacked = bound{20, time.Second}

// suspects returns all contenders, under the limit.
func suspects(client rueidis.Client, waits map[string]retryAfter) map[string]ask {
	asks := map[string]ask{}
	for name, r := range waits {
		asks[name] = r.ask
	}
	for _, r := range rivals {
		asks[r.name] = r.row(client, contender{}, []bound{attacked}).ask
	}
	for name, ask := range plain(client) {
		asks[name] = under(ask, attacked)
	}
	return asks
}

// answer is one attempt of an attack. The decision was made between sent and came.
type answer struct {
	sent, came time.Time
	allowed    bool
}

// An attack decides when to ask about one event.
type attack func(try func() bool, wait func(time.Duration))

// hammer asks every 2 ms for d.
func hammer(d time.Duration) attack {
	return func(try func() bool, wait func(time.Duration)) {
		for begin := time.Now(); time.Since(begin) < d; wait(2 * time.Millisecond) {
			try()
		}
	}
}

var attacks = []attack{
	// At once, and for more than two Per: an allowance that refills meanwhile comes on top.
	hammer(2*attacked.per + attacked.per/5),
	// One unit opens a window, the rest comes at its end, and the next window follows.
	func(try func() bool, wait func(time.Duration)) {
		try()
		wait(attacked.per - 80*time.Millisecond)
		hammer(attacked.per)(try, wait)
	},
	// The same, where windows begin with the second.
	func(try func() bool, wait func(time.Duration)) {
		wait(time.Until(time.Now().Truncate(attacked.per).Add(2*attacked.per - 80*time.Millisecond)))
		hammer(attacked.per)(try, wait)
	},
}

// flow asks 1.5 times as often as the limit allows, at random times, for four Per.
func flow(try func() bool, wait func(time.Duration)) {
	mean := float64(attacked.per) / (1.5 * float64(attacked.max))
	for begin := time.Now(); time.Since(begin) < 4*attacked.per; {
		try()
		wait(time.Duration(rand.ExpFloat64() * mean))
	}
}

// accuracies attacks all contenders side by side.
func (b bench) accuracy(ctx context.Context, res *result) error {
	b.log.Print("accuracy")
	if err := b.flush(ctx); err != nil {
		return err
	}
	waits := waiting(b.ours, b.theirs)
	var all []accuracy
	var failed error
	var mu sync.Mutex
	var group sync.WaitGroup
	first := 0
	for name, ask := range suspects(b.ours, waits) {
		begin := first // events of its own, as some contenders share keys
		first += len(attacks) + 1 + trials
		group.Go(func() {
			a, err := judge(ctx, name, ask, begin)
			if ask, waits := waits[name]; waits && err == nil {
				a.Waits = true
				a.Wrong, err = worstWait(ctx, ask, begin+len(attacks)+1)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
			if err != nil {
				failed = fmt.Errorf("accuracy of %s: %w", name, err)
			}
		})
	}
	group.Wait()
	slices.SortFunc(all, func(a, b accuracy) int { return strings.Compare(a.Name, b.Name) })
	res.Accuracy = all
	return failed
}

// judge runs the attacks and the flow against one contender, each on an event of its own.
func judge(ctx context.Context, name string, ask ask, begin int) (a accuracy, err error) {
	a.Name = name
	for i, attack := range append(attacks[:len(attacks):len(attacks)], flow) {
		answers, err := perform(ctx, attack, ask, event(begin+i))
		if err != nil {
			return a, err
		}
		a.Most = max(a.Most, float64(mostInPer(answers))/float64(attacked.max))
		if i == len(attacks) {
			a.Denied, a.Needless = needless(answers)
		}
	}
	return a, nil
}

func perform(ctx context.Context, attack attack, ask ask, event string) (answers []answer, err error) {
	attack(func() bool {
		sent := time.Now()
		allowed, errAsk := ask(ctx, event)
		answers = append(answers, answer{sent, time.Now(), allowed})
		if errAsk != nil {
			err = errAsk
		}
		return allowed
	}, func(d time.Duration) { <-time.After(d) })
	return answers, err
}

// mostInPer returns the most units that were certainly allowed within some span of Per, less the
// millisecond in which the server's clock counts.
func mostInPer(answers []answer) (most int) {
	allowed := slices.DeleteFunc(slices.Clone(answers), func(a answer) bool { return !a.allowed })
	for i, first := range allowed {
		n := 0
		for _, last := range allowed[i:] {
			if last.came.Sub(first.sent) < attacked.per-time.Millisecond {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// needless counts the denials, and those that had certainly fewer than Max units in the Per before.
func needless(answers []answer) (denied, needless int) {
	for i, a := range answers {
		if a.allowed {
			continue
		}
		denied++
		n := int64(0)
		for _, before := range answers[:i] {
			if before.allowed && before.came.After(a.sent.Add(-attacked.per)) {
				n++
			}
		}
		if n < attacked.max {
			needless++
		}
	}
	return denied, needless
}

// accuracyTable returns a table in Markdown.
func accuracyTable(all []accuracy) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nUnder %d in %v, attacked in real time: the most units in any span of that length, over Max.\n", attacked.max, attacked.per)
	text.WriteString("Of a random flow of 1.5 times that rate: the denials, and those after a span that held fewer than Max.\n")
	text.WriteString("The largest error of RetryAfter, seen by callers who ask every 1 or 2 ms.\n\n| | most / Max | denied | needlessly | RetryAfter wrong by |\n|---|---:|---:|---:|---:|\n")
	for _, a := range all {
		wrong := "has none"
		if a.Waits {
			wrong = fmt.Sprint(a.Wrong.Round(100 * time.Microsecond))
		}
		fmt.Fprintf(&text, "| %s | %.2f | %d | %d | %s |\n", a.Name, a.Most, a.Denied, a.Needless, wrong)
	}
	return text.String()
}
