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

// accuracy is whether a contender keeps its limit, under attacks that know the algorithms, in real time.
type accuracy struct {
	Name     string  `json:"name"`
	Most     float64 `json:"most"`     // units in a span of Per, over Max: the most of all attacks
	Denied   int     `json:"denied"`   // attempts of a random flow
	Needless int     `json:"needless"` // of these, those before which the last Per held fewer than Max

	Tells bool          `json:"tells"`           // how long to wait
	Wrong time.Duration `json:"wrong,omitempty"` // by so much at worst, in ns
}

// tried is the limit of the attacks: short, so that they take seconds.
var tried = bound{20, time.Second}

// suspects are all contenders, under the limit.
func suspects(client rueidis.Client, waits map[string]teller) map[string]ask {
	asks := map[string]ask{}
	for name, tell := range waits {
		asks[name] = tell.ask
	}
	for _, r := range rivals {
		asks[r.name] = r.row(client, contender{}, []bound{tried}).ask
	}
	for name, ask := range plain(client) {
		asks[name] = under(ask, tried)
	}
	return asks
}

// answer is one attempt of an attack: the decision was made between the two times.
type answer struct {
	sent, came time.Time
	admitted   bool
}

// An attack asks about one event, and tells by the waits when.
type attack func(try func() bool, wait func(time.Duration))

// hammer asks every 2 ms for so long.
func hammer(d time.Duration) attack {
	return func(try func() bool, wait func(time.Duration)) {
		for begin := time.Now(); time.Since(begin) < d; wait(2 * time.Millisecond) {
			try()
		}
	}
}

var attacks = []attack{
	// At once and for more than two Per: what an allowance that refills gives back meanwhile comes on top.
	hammer(2*tried.per + tried.per/5),
	// One unit opens a window, the rest comes at its end, and the next window follows.
	func(try func() bool, wait func(time.Duration)) {
		try()
		wait(tried.per - 80*time.Millisecond)
		hammer(tried.per)(try, wait)
	},
	// The same, where windows begin with the second.
	func(try func() bool, wait func(time.Duration)) {
		wait(time.Until(time.Now().Truncate(tried.per).Add(2*tried.per - 80*time.Millisecond)))
		hammer(tried.per)(try, wait)
	},
}

// flow is half as many attempts again as the limit admits, at random times, for four Per.
func flow(try func() bool, wait func(time.Duration)) {
	mean := float64(tried.per) / (1.5 * float64(tried.max))
	for begin := time.Now(); time.Since(begin) < 4*tried.per; {
		try()
		wait(time.Duration(rand.ExpFloat64() * mean))
	}
}

// accuracies attacks all contenders side by side.
func (b bench) accuracies(ctx context.Context, res *result) error {
	b.log.Print("accuracy")
	if err := b.flush(ctx); err != nil {
		return err
	}
	waits := tellers(b.ours, b.theirs)
	var all []accuracy
	var failed error
	var mu sync.Mutex
	var group sync.WaitGroup
	first := 0
	for name, ask := range suspects(b.ours, waits) {
		begin := first // events of its own: some have the same keys
		first += len(attacks) + 1 + trials
		group.Go(func() {
			a, err := judge(ctx, name, ask, begin)
			if tell, tells := waits[name]; tells && err == nil {
				a.Tells = true
				a.Wrong, err = worstWait(ctx, tell, begin+len(attacks)+1)
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

// judge runs the attacks and the flow on one contender, each on an event of its own.
func judge(ctx context.Context, name string, ask ask, begin int) (a accuracy, err error) {
	a.Name = name
	for i, attack := range append(attacks[:len(attacks):len(attacks)], flow) {
		answers, err := perform(ctx, attack, ask, event(begin+i))
		if err != nil {
			return a, err
		}
		a.Most = max(a.Most, float64(mostInPer(answers))/float64(tried.max))
		if i == len(attacks) {
			a.Denied, a.Needless = needless(answers)
		}
	}
	return a, nil
}

func perform(ctx context.Context, attack attack, ask ask, event string) (answers []answer, err error) {
	attack(func() bool {
		sent := time.Now()
		admitted, errAsk := ask(ctx, event)
		answers = append(answers, answer{sent, time.Now(), admitted})
		if errAsk != nil {
			err = errAsk
		}
		return admitted
	}, func(d time.Duration) { <-time.After(d) })
	return answers, err
}

// mostInPer is how many units were admitted for certain within some span that is a millisecond shorter than Per: in these the servers'
// clocks count.
func mostInPer(answers []answer) (most int) {
	admitted := slices.DeleteFunc(slices.Clone(answers), func(a answer) bool { return !a.admitted })
	for i, first := range admitted {
		n := 0
		for _, last := range admitted[i:] {
			if last.came.Sub(first.sent) < tried.per-time.Millisecond {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// needless counts the denials, and those at which fewer than Max units were admitted for certain in the Per before.
func needless(answers []answer) (denied, needless int) {
	for i, a := range answers {
		if a.admitted {
			continue
		}
		denied++
		n := int64(0)
		for _, before := range answers[:i] {
			if before.admitted && before.came.After(a.sent.Add(-tried.per)) {
				n++
			}
		}
		if n < tried.max {
			needless++
		}
	}
	return denied, needless
}

// accuracyTable is in Markdown.
func accuracyTable(all []accuracy) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nUnder %d in %v, attacked in real time: the most units in any span of that length, over Max, and what a random flow of\n", tried.max, tried.per)
	text.WriteString("half as many again was denied though the span before held fewer than Max; and by how much the wait that a denied caller was told\n")
	text.WriteString("was wrong at worst, by callers who ask every 1 or 2 ms.\n\n| | most / Max | denied | needlessly | wait wrong by |\n|---|---:|---:|---:|---:|\n")
	for _, a := range all {
		wrong := "tells none"
		if a.Tells {
			wrong = fmt.Sprint(a.Wrong.Round(100 * time.Microsecond))
		}
		fmt.Fprintf(&text, "| %s | %.2f | %d | %d | %s |\n", a.Name, a.Most, a.Denied, a.Needless, wrong)
	}
	return text.String()
}
