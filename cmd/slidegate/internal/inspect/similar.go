package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/keyspace"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/records"
	"github.com/slidegate/slidegate/internal/keys"
)

// Similar represents the result of a search for similar events of the same limiter. The search runs
// if nothing is stored for the event. Without a search, the result is omitted.
type Similar struct {
	Events []similarEvent `json:"events"`     // the most similar first
	Hashed int64          `json:"hashed"`     // events of the limiter whose keys contain only a hash of the event
	Share  float64        `json:"share_seen"` // the share of all keys that the search has seen

	secret  bool   // --secret-file is given, so there was no search
	failure string // why the search failed
}

// similarEvent represents an event of the same limiter that has a similar spelling, or that another
// package counts.
type similarEvent struct {
	Event     string `json:"event"`
	Estimator string `json:"estimator"`

	distance int
}

// searchBudget bounds the time and the number of keys of a search.
var searchBudget = keyspace.Budget{Time: 2 * time.Second, Keys: 1_000_000}

// mostSimilar is how many similar events are shown.
const mostSimilar = 5

// withSimilar wraps a fetch. If nothing is stored for the event and it has no override, the
// returned function also searches for similar events.
func (s *Subject) withSimilar(client rueidis.Client, fetch func(context.Context) (result, error)) func(context.Context) (result, error) {
	return func(ctx context.Context) (result, error) {
		r, err := fetch(ctx)
		st, isEvent := r.(*State)
		if err != nil || !isEvent || st.Stored || st.Override != nil {
			return r, err
		}
		st.Similar = s.search(ctx, client, st.Estimator)
		return st, s.userError(ctx, ctx.Err())
	}
}

// search looks through the keys of the limiter for events that are similar to the subject's.
func (s *Subject) search(ctx context.Context, client rueidis.Client, estimator string) *Similar {
	found := &Similar{Events: []similarEvent{}, secret: len(s.Secret) > 0}
	if found.secret {
		return found
	}
	masters, err := keyspace.Masters(ctx, client)
	if err == nil {
		err = keyspace.Walk(ctx, masters, searchBudget, func(_ int, page []string) error {
			for _, key := range page {
				found.add(s, estimator, key)
			}
			return nil
		})
	}
	if err != nil {
		found.failure = s.Redis.Redact(err.Error())
	}
	found.Share = keyspace.Share(masters)
	return found
}

// add adds the event of the given key, if the key belongs to the limiter and the event is similar.
func (f *Similar) add(s *Subject, estimator, key string) {
	name, tag, letter, ok := keys.Split(key)
	kind := records.Kind(letter).String()
	if !ok || name != s.Name || kind == "" {
		return
	}
	event := keys.Event(tag)
	if event == "" {
		f.Hashed++
		return
	}
	e := similarEvent{event, kind, distance(s.Event, event)}
	if kind != estimator {
		e.distance++ // ties go to the event of the same package
	} else if event == s.Event {
		return // the event has been stored since
	}
	if e.distance > farthest || slices.Contains(f.Events, e) {
		return
	}
	i, _ := slices.BinarySearchFunc(f.Events, e, func(a, b similarEvent) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.Event, b.Event), strings.Compare(a.Estimator, b.Estimator))
	})
	f.Events = slices.Insert(f.Events, i, e)
	f.Events = f.Events[:min(len(f.Events), mostSimilar)]
}

// farthest is the smallest distance at which events no longer count as similar.
const farthest = 1000

// distance returns how different two events are, ignoring case. It is 10 for each edit if at most
// two are needed. If one event contains the other, it is 100 plus the difference in length.
func distance(asked, event string) int {
	a, b := strings.ToLower(asked), strings.ToLower(event)
	if a == b {
		return 0
	}
	edits := farthest
	if least := min(len(a), len(b)); least >= 4 && len(a)-len(b) <= 2 && len(b)-len(a) <= 2 {
		edits = levenshtein(a, b)
	}
	switch {
	case edits <= 2:
		return 10 * edits
	case len(a) >= 3 && strings.Contains(b, a), len(b) >= 3 && strings.Contains(a, b):
		return 100 + max(len(a), len(b)) - min(len(a), len(b))
	}
	return farthest + 1
}

// levenshtein returns how many bytes have to be inserted, removed or replaced to turn a into b.
func levenshtein(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// text says what the search found, or why there was no search. It returns "" if the search saw all
// keys and found nothing.
func (f *Similar) text(st *State) string {
	var b strings.Builder
	if len(f.Events) > 0 {
		fmt.Fprintf(&b, "Similar events of %s:\n", st.Limiter)
	}
	for _, e := range f.Events {
		line := "  " + logs.Shown(e.Event)
		if e.Estimator != st.Estimator {
			line += ", of package " + e.Estimator
		}
		b.WriteString(line + "\n")
	}
	switch {
	case f.secret:
		b.WriteString("Similar events were not searched: with a Secret, keys hold hashes, and an event\ncannot be read back from its key.\n")
	case strings.Contains(f.failure, "NOPERM"):
		b.WriteString("Similar events were not searched: this user may not list keys.\n")
	case f.failure != "":
		fmt.Fprintf(&b, "Similar events could not be searched (%s).\n", f.failure)
	case f.Hashed > 0:
		fmt.Fprintf(&b, "%s of %s cannot be read back: a key holds a hash.\nIf the limiter has a Secret, name its file by --secret-file.\n", eventsText(f.Hashed), st.Limiter)
	}
	if !f.secret && f.failure == "" && f.Share < 1 {
		fmt.Fprintf(&b, "The search for similar events ended after %s of the keys.\n", percent(f.Share))
	}
	if b.Len() > 0 {
		return "\n" + b.String()
	}
	return ""
}

// next returns the arguments of a command that inspects the most similar event. If there is none,
// it returns nil.
func (f *Similar) next(flags []string, name string) []string {
	if len(f.Events) == 0 {
		return nil
	}
	event, ok := shellWord(f.Events[0].Event)
	if !ok {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		return flag == "--ar1" || flag == "--pace" || flag == "--inflight"
	})
	return slices.Concat([]string{"inspect"}, others, flagOf(f.Events[0].Estimator), []string{name, event})
}
