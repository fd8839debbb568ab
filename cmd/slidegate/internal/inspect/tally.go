package inspect

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/records"
	"github.com/slidegate/slidegate/internal/keys"
)

// limiterID identifies a limiter.
type limiterID struct {
	name string
	kind records.Kind
}

// usage describes how much of its limits an event has used.
type usage struct {
	Event   string    `json:"event"` // or its hash, if Hashed is set
	Hashed  bool      `json:"hashed"`
	Key     string    `json:"key"`
	Last    time.Time `json:"last,omitzero"` // the last event; for pace, the newest turn; not set for inflight
	Share   *float64  `json:"share_used,omitempty"`
	Windows []*used   `json:"windows"` // the shortest first

	rank float64
}

// used describes how many units an event has used in a window. For ar1, it describes the level,
// which is in units too.
type used struct {
	Per   int64    `json:"per_ms,omitzero"` // 0 for inflight, whose limits have no window
	Used  float64  `json:"used"`
	Limit string   `json:"limit,omitempty"` // of --limit
	Max   int64    `json:"max,omitempty"`
	Share *float64 `json:"share_used,omitempty"`

	per time.Duration
}

// ranking determines which events are the fullest. If no limits are given, the fullest events are
// those with the most units in any one window, because Redis does not store Max.
type ranking struct {
	limits flags.Limits
	held   int64 // Max, for package inflight; 0 if not given
}

// mostFullest is how many of the fullest events are kept per limiter.
const mostFullest = 10

// rate computes how full each window of u is, and the rank of u.
func (r ranking) rate(u *usage) {
	given := len(r.limits) > 0 || r.held > 0
	for _, w := range u.Windows {
		w.limit(r)
		switch {
		case !given:
			u.rank = max(u.rank, w.Used)
		case w.Share != nil && (u.Share == nil || *w.Share > *u.Share):
			u.rank, u.Share = *w.Share, w.Share
		}
	}
}

// limit sets the limit that was given for the window, if there is one.
func (w *used) limit(r ranking) {
	if w.per == 0 && r.held > 0 {
		w.Limit, w.Max = strconv.FormatInt(r.held, 10), r.held
	}
	for _, l := range r.limits {
		if l.Per == w.per {
			w.Limit, w.Max = l.Label(), l.Max
		}
	}
	if w.Max > 0 {
		share := w.Used / float64(w.Max)
		w.Share = &share
	}
}

// insert inserts u into the fullest events, which are sorted in descending order. Ties go to the
// newest event. An event that has used nothing is not inserted.
func (r ranking) insert(fullest []*usage, u *usage) []*usage {
	order := func(a, b *usage) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), b.Last.Compare(a.Last), cmp.Compare(a.Key, b.Key))
	}
	full := len(fullest) == mostFullest
	if u.rank == 0 || full && order(u, fullest[mostFullest-1]) >= 0 {
		return fullest
	}
	if full {
		fullest = fullest[:mostFullest-1]
	}
	i, _ := slices.BinarySearchFunc(fullest, u, order)
	return slices.Insert(fullest, i, u)
}

// counted describes what a master stores for a limiter.
type counted struct {
	events, hashed  int64
	measured, bytes int64
	fullest         []*usage
}

// tally counts the events stored on a master.
type tally struct {
	client  rueidis.Client
	name    string // the only limiter to count, or "" for all
	ranking ranking
	now     func() time.Time

	known    map[uint64]struct{} // hashes of the candidates' keys
	limiters map[limiterID]*counted
	unread   int64
	foreign  int64
	cause    string // why an event could not be read
}

func newTally(client rueidis.Client, name string, r ranking, now func() time.Time) *tally {
	return &tally{client: client, name: name, ranking: r, now: now, known: map[uint64]struct{}{}, limiters: map[limiterID]*counted{}}
}

// candidate is a key that looks like a limiter's.
type candidate struct {
	key, tag string
	id       limiterID
	measure  bool // whether to read its size in bytes too

	replies []rueidis.RedisResult
}

// The size in bytes is measured for a limiter's first events, and then for only some of the others.
// Measuring the size costs the server about as much as reading the record.
const (
	measuredAtFirst = 200
	measuredThen    = 16
)

// seed seeds the hashes of keys. If the hashes of two keys collide, the second key is not counted.
// For five million keys, the probability of a collision is 7 in ten million.
var seed = maphash.MakeSeed()

// candidateOf returns the candidate for a key. ok is false if the key does not look like a key of a
// limiter that is counted, or has been seen before (SCAN can return a key twice). Override tables
// and probe keys belong to no limiter.
func (t *tally) candidateOf(key string) (c candidate, ok bool) {
	name, tag, letter, ok := keys.Split(key)
	id := limiterID{name, records.Kind(letter)}
	if !ok || id.kind.String() == "" || t.name != "" && t.name != name {
		return c, false
	}
	hash := maphash.String(seed, key)
	if _, known := t.known[hash]; known {
		return c, false
	}
	t.known[hash] = struct{}{}
	l := t.limiters[id]
	return candidate{key: key, tag: tag, id: id, measure: l == nil || l.measured < measuredAtFirst || hash%measuredThen == 0}, true
}

// add counts a page of keys. It reads their contents in one round trip.
func (t *tally) add(ctx context.Context, page []string) error {
	var found []candidate
	for _, key := range page {
		if c, ok := t.candidateOf(key); ok {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return nil
	}
	now := t.now()
	if err := t.read(ctx, found, now); err != nil {
		return err
	}
	for i := range found {
		t.count(&found[i], now)
	}
	return nil
}

// read reads the contents of the given candidates.
func (t *tally) read(ctx context.Context, found []candidate, now time.Time) error {
	var commands rueidis.Commands
	ends := make([]int, len(found))
	for i := range found {
		commands = t.append(commands, &found[i], now)
		ends[i] = len(commands)
	}
	replies := t.client.DoMulti(ctx, commands...)
	for _, reply := range replies {
		if err := reply.NonRedisError(); err != nil {
			return err
		}
	}
	start := 0
	for i, end := range ends {
		found[i].replies, start = replies[start:end], end
	}
	return nil
}

// longestRecord is the maximum number of bytes read of a record. It bounds the time spent on values
// of other programs. Only a record with many thousands of buckets, because of a small Resolution,
// is longer.
const longestRecord = 1 << 16

// append appends the commands that read a candidate: its record or, for package inflight, the head
// and the units held, and the size if that is to be measured.
func (t *tally) append(commands rueidis.Commands, c *candidate, now time.Time) rueidis.Commands {
	b := t.client.B()
	if c.id.kind == records.Inflight {
		commands = append(commands, b.Zrange().Key(c.key).Min("0").Max("0").Build(),
			b.Zcount().Key(c.key).Min("("+strconv.FormatInt(now.UnixMicro(), 10)).Max("+inf").Build())
	} else {
		commands = append(commands, b.Getrange().Key(c.key).Start(0).End(longestRecord).Build())
	}
	if c.measure {
		commands = append(commands, b.MemoryUsage().Key(c.key).Build())
	}
	return commands
}

// count counts a candidate, unless it belongs to another program or has expired since SCAN returned
// it.
func (t *tally) count(c *candidate, now time.Time) {
	u := &usage{Event: c.tag, Hashed: true, Key: c.key, Windows: []*used{}}
	switch state, err := c.fill(u, now); {
	case err != nil:
		t.unread++
		t.cause = err.Error()
	case state == gone:
		return
	case state == foreign:
		t.foreign++
		return
	}
	if event := keys.Event(c.tag); event != "" {
		u.Event, u.Hashed = event, false
	}
	t.limiter(c.id).add(c, u, t.ranking)
}

// limiter returns the counts for the given limiter.
func (t *tally) limiter(id limiterID) *counted {
	if t.limiters[id] == nil {
		t.limiters[id] = &counted{}
	}
	return t.limiters[id]
}

// add counts an event.
func (l *counted) add(c *candidate, u *usage, r ranking) {
	l.events++
	if u.Hashed {
		l.hashed++
	}
	if c.measure {
		if bytes, err := c.replies[len(c.replies)-1].AsInt64(); err == nil {
			l.measured, l.bytes = l.measured+1, l.bytes+bytes
		}
	}
	r.rate(u)
	l.fullest = r.insert(l.fullest, u)
}

// holding says what a candidate's key contains.
type holding int

const (
	record  holding = iota
	gone            // nothing, because the key expired after SCAN returned it
	foreign         // a value of another program
)

// fill sets in u what the event has used. It returns an error if the record could not be read.
func (c *candidate) fill(u *usage, now time.Time) (holding, error) {
	if c.id.kind == records.Inflight {
		return c.fillHeld(u)
	}
	value, err := c.replies[0].ToString()
	switch {
	case isWrongType(err):
		return foreign, nil
	case err != nil:
		return record, err
	case value == "":
		return gone, nil
	case len(value) > longestRecord && records.Begins(c.id.kind, value):
		return record, errors.New("the record is longer than 64 KiB")
	}
	r, ok := records.Read(c.id.kind, value, now)
	if !ok {
		return foreign, nil
	}
	u.Last = r.Last
	slices.SortFunc(r.Usages, func(a, b records.Usage) int { return cmp.Compare(a.Per, b.Per) })
	for _, w := range r.Usages {
		u.Windows = append(u.Windows, &used{Per: w.Per.Milliseconds(), Used: w.Used, per: w.Per})
	}
	return record, nil
}

// fillHeld is like fill, but for the leases of package inflight.
func (c *candidate) fillHeld(u *usage) (holding, error) {
	first, err := c.replies[0].AsStrSlice()
	switch {
	case isWrongType(err):
		return foreign, nil
	case err != nil:
		return record, err
	case len(first) == 0:
		return gone, nil
	case len(first[0]) != 14 || first[0][0] != 200: // not the head that inflight.lua describes
		return foreign, nil
	}
	held, err := c.replies[1].AsInt64()
	u.Windows = append(u.Windows, &used{Used: float64(held)})
	return record, err
}

// isWrongType reports whether err means that a key holds a value of another type.
func isWrongType(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") }
