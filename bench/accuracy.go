package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/bench/audit"
	"github.com/slidegate/slidegate/window"
)

// accuracy is the result of auditing a contender in real time.
type accuracy struct {
	Name      string        `json:"name"`
	Most      float64       `json:"most"`           // the most units within any Per, relative to Max
	Denied    int           `json:"denied"`         // attempts
	Needless  int           `json:"needless"`       // denials that the limit does not require
	Waits     int           `json:"waits"`          // denials that reported a wait
	TooLongBy time.Duration `json:"too_long_by_ns"` // the most by which a wait was longer than needed
	Found     []audit.Kind  `json:"found"`
}

// attacked is the limit used for audits. Its window is short, so that an audit takes seconds.
var attacked = bound{20, time.Second}

// suspects returns all contenders, with the limit of the audits. For those that do not return
// waits, the wait is 0.
func (b bench) suspects(ctx context.Context) (map[string]retryAfter, error) {
	all := waiting(b.ours, b.theirs)
	for name, ask := range plain(b.ours) {
		all[name] = silent(under(ask, attacked))
	}
	for _, r := range rivals {
		all[r.name] = silent(r.row(b.ours, contender{}, []bound{attacked}).ask)
	}
	has, err := b.hasIncrex(ctx)
	if has {
		all[bounding] = silent(increx(b.ours, attacked))
	}
	return all, err
}

// silent adapts a contender that does not return waits.
func silent(ask ask) retryAfter {
	return func(ctx context.Context, event string) (bool, time.Duration, error) {
		allowed, err := ask(ctx, event)
		return allowed, 0, err
	}
}

// accuracy audits all contenders concurrently. Each uses an event of its own.
func (b bench) accuracy(ctx context.Context, res *result) error {
	b.log.Print("accuracy")
	attempts, err := b.suspects(ctx)
	if err = errors.Join(err, b.flush(ctx)); err != nil {
		return err
	}
	var all []accuracy
	var failed error
	var mu sync.Mutex
	var group sync.WaitGroup
	next := 0
	for name, ask := range attempts {
		event := event(next) // because some contenders share keys
		next++
		group.Go(func() {
			a, err := judge(ctx, name, ask, event)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
			if err != nil {
				failed = fmt.Errorf("accuracy of %s: %w", name, err)
			}
		})
	}
	group.Wait()
	slices.SortFunc(all, func(a, b accuracy) int { return cmp.Compare(a.Name, b.Name) })
	res.Accuracy = all
	return failed
}

// judge audits a contender on the given event.
func judge(ctx context.Context, name string, ask retryAfter, event string) (accuracy, error) {
	r, err := audit.Run(ctx, window.Limit{Max: attacked.max, Per: attacked.per}, func(ctx context.Context) (bool, time.Duration, error) {
		return ask(ctx, event)
	})
	return accuracy{name, float64(r.Most) / float64(attacked.max), r.Denied, r.Needless, r.Waits, r.TooLongBy, r.Found}, err
}

// accuracyTable returns a Markdown table.
func accuracyTable(all []accuracy) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nAudits under %d in %v, in real time: the most units in any interval of that length, relative to Max; the denials,\n", attacked.max, attacked.per)
	text.WriteString("and how many of these were without need; the waits; and what was found.\n\n| | most / Max | denied | without need | waits | found |\n|---|---:|---:|---:|---|---|\n")
	for _, a := range all {
		fmt.Fprintf(&text, "| %s | %.2f | %d | %d | %s | %s |\n", a.Name, a.Most, a.Denied, a.Needless, a.waits(), a.found())
	}
	return text.String()
}

// waits says how wrong the returned waits were.
func (a accuracy) waits() string {
	switch {
	case a.Waits == 0:
		return "has none"
	case slices.Contains(a.Found, audit.KindWaitTooShort):
		return "too short"
	case slices.Contains(a.Found, audit.KindWaitTooLong):
		return "too long by " + a.TooLongBy.Round(time.Millisecond).String()
	}
	return "right"
}

// found lists the findings.
func (a accuracy) found() string {
	found := make([]string, len(a.Found))
	for i, kind := range a.Found {
		found[i] = string(kind)
	}
	return cmp.Or(strings.Join(found, ", "), "nothing")
}
