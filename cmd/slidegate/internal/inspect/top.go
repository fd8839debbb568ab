package inspect

import (
	"cmp"
	"context"
	_ "embed" // for the help text
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/keyspace"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/records"
)

// Top represents "slidegate top" and its flags.
type Top struct {
	Server
	Args struct {
		Name flags.Argument `arg:"" optional:"" help:"The Name in the limiter's Config. Default: all limiters."`
	} `embed:""`
	Limits  flags.Texts   `name:"limit" placeholder:"MAX/PER" help:"With NAME: a limit of the service, as in 5/1h. Events are then sorted by how much of a limit they have used. For package inflight: a Max."`
	MaxTime time.Duration `placeholder:"TIME" default:"5s" help:"Look at keys for at most TIME. Default: 5s."`
	MaxKeys int64         `placeholder:"N" default:"5000000" help:"Look at about N keys at most. Default: 5000000."`
	JSON    bool          `name:"json" help:"Print the report as one JSON object."`
}

//go:embed top.txt
var topHelp string

// Help returns the text of slidegate top --help.
func (Top) Help() string { return topHelp }

// Run lists the limiters.
func (c *Top) Run(ctx context.Context, s cli.Streams) error {
	r, err := c.ranking()
	if err != nil {
		return err
	}
	subject := c.subject(c.Args.Name, "", nil)
	client, err := subject.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	o, err := c.look(ctx, subject, client, r, s.Now)
	if err != nil {
		return subject.lookError(ctx, err)
	}
	return show(o, s, c.JSON)
}

// ranking returns how to rank events, or an error if flags conflict.
func (c *Top) ranking() (r ranking, err error) {
	switch {
	case c.MaxTime <= 0 || c.MaxKeys <= 0:
		return r, fmt.Errorf("--max-time %v and --max-keys %d have to be more than 0", c.MaxTime, c.MaxKeys)
	case len(c.Limits) > 0 && c.Args.Name == "":
		return r, errors.New("--limit applies to one limiter; name it, as in slidegate top --limit 5/1h login")
	}
	var windows []string
	for _, text := range c.Limits {
		held, err := strconv.ParseInt(text, 10, 64)
		switch isMax := err == nil && held > 0; {
		case isMax && r.held > 0:
			return r, fmt.Errorf("--limit: %d and %d are both the Max of a limiter of package inflight; keep one", r.held, held)
		case isMax:
			r.held = held
		default:
			windows = append(windows, text)
		}
	}
	if len(windows) > 0 {
		if r.limits, err = flags.ParseLimits(strings.Join(windows, ",")); err != nil {
			err = fmt.Errorf("--limit: %w", err)
		}
	}
	return r, err
}

// overview describes what Redis stores for limiters. --json prints it. Durations are in
// milliseconds.
type overview struct {
	Name     string     `json:"name,omitempty"` // the only limiter to show
	Redis    string     `json:"redis"`
	At       time.Time  `json:"at"` // by the Redis clock
	Masters  int        `json:"masters"`
	Keys     int64      `json:"keys"`             // of all programs
	Seen     int64      `json:"keys_seen"`        // keys seen within the budget
	Complete bool       `json:"complete"`         // whether all keys were seen
	Failed   string     `json:"failed,omitempty"` // the nodes that failed; their keys were not seen
	Share    float64    `json:"share_seen"`       // the share of keys seen
	Unread   int64      `json:"unread"`           // events whose record could not be read
	Foreign  int64      `json:"foreign"`          // keys that look like a limiter's but do not contain a record
	Limiters []*limited `json:"limiters"`

	flags   []string // flags that name the Redis server, quoted for a shell
	ranking ranking
	ended   bool   // whether all keys of the masters that answered were seen
	cause   string // why an event could not be read
}

// limited describes what Redis stores for a limiter.
type limited struct {
	Limiter   string   `json:"limiter"`
	Estimator string   `json:"estimator"`
	Events    int64    `json:"events"`      // an estimate, unless all keys were seen
	Seen      int64    `json:"events_seen"` // events seen within the budget
	Hashed    int64    `json:"hashed_seen"` // those of Seen whose key contains a hash in place of the event
	Bytes     int64    `json:"bytes"`       // of all Events, estimated from the keys that were measured
	Measured  int64    `json:"events_measured"`
	Fullest   []*usage `json:"fullest"` // among the events seen
}

// look scans the keys once.
func (c *Top) look(ctx context.Context, s *Subject, client rueidis.Client, r ranking, now func() time.Time) (*overview, error) {
	masters, failed := keyspace.Masters(ctx, client)
	if failed != nil && (len(masters) == 0 || ctx.Err() != nil) {
		return nil, failed
	}
	tallies := make([]*tally, len(masters))
	o := &overview{Name: s.Name, Redis: s.Redis.String(), Masters: len(masters), ended: true, flags: s.flags(), ranking: r, Limiters: []*limited{}}
	for i, m := range masters {
		clock, err := clockOf(ctx, m.Client, now)
		if err != nil {
			return nil, err
		}
		if o.At.IsZero() {
			o.At = clock()
		}
		tallies[i] = newTally(m.Client, s.Name, r, clock)
	}
	budget := keyspace.Budget{Time: c.MaxTime, Keys: c.MaxKeys}
	err := keyspace.Walk(ctx, masters, budget, func(i int, keys []string) error {
		return tallies[i].add(ctx, keys)
	})
	if err != nil {
		return nil, err
	}
	for i, m := range masters {
		o.addMaster(m, tallies[i])
	}
	if failed != nil {
		o.Failed = s.Redis.Redact(failed.Error())
	}
	o.Complete = o.ended && failed == nil
	o.Share, o.cause = keyspace.Share(masters), s.Redis.Redact(o.cause)
	o.sort()
	return o, nil
}

// clockOf returns the clock of the server, or the clock that tests set. It asks the server for its
// time once.
func clockOf(ctx context.Context, client rueidis.Client, now func() time.Time) (func() time.Time, error) {
	if now != nil {
		return now, nil
	}
	parts, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
	if err != nil {
		return nil, fmt.Errorf("TIME: %w", err)
	}
	asked := time.Now()
	return func() time.Time { return time.Unix(parts[0], 1000*parts[1]).UTC().Add(time.Since(asked)) }, nil
}

// lookError rewords the error of a walk for the user.
func (s *Subject) lookError(ctx context.Context, err error) error {
	switch {
	case err == nil, ctx.Err() != nil:
		return s.userError(ctx, err)
	case strings.Contains(err.Error(), "NOPERM"):
		return s.Redis.Failed(err, "name a user who may, with the rule in docs/keys.md of the project")
	}
	return s.outage(err)
}

// addMaster adds what a master stores. If not all of its keys were seen, addMaster estimates the
// number of events from those seen.
func (o *overview) addMaster(m *keyspace.Master, t *tally) {
	o.ended = o.ended && m.Ended
	o.Keys, o.Seen = o.Keys+m.Size, o.Seen+int64(m.Share()*float64(m.Size)+0.5)
	o.Unread, o.Foreign, o.cause = o.Unread+t.unread, o.Foreign+t.foreign, cmp.Or(o.cause, t.cause)
	for id, c := range t.limiters {
		l := o.limiter(id)
		events := int64(float64(c.events)/m.Share() + 0.5)
		l.Events, l.Seen, l.Hashed = l.Events+events, l.Seen+c.events, l.Hashed+c.hashed
		if c.measured > 0 {
			l.Bytes += int64(float64(c.bytes) / float64(c.measured) * float64(events))
		}
		l.Measured += c.measured
		for _, u := range c.fullest {
			l.Fullest = o.ranking.insert(l.Fullest, u)
		}
	}
}

// limiter returns the entry of a limiter, and creates it if it does not exist.
func (o *overview) limiter(id limiterID) *limited {
	i := slices.IndexFunc(o.Limiters, func(l *limited) bool { return l.Limiter == id.name && l.Estimator == id.kind.String() })
	if i < 0 {
		i = len(o.Limiters)
		o.Limiters = append(o.Limiters, &limited{Limiter: id.name, Estimator: id.kind.String(), Fullest: []*usage{}})
	}
	return o.Limiters[i]
}

// sort puts the limiter with the most events first.
func (o *overview) sort() {
	slices.SortFunc(o.Limiters, func(a, b *limited) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), strings.Compare(a.Limiter, b.Limiter), strings.Compare(a.Estimator, b.Estimator))
	})
}

// status returns the exit status for the overview.
func (o *overview) status() cli.ExitStatus {
	if len(o.Limiters) == 0 {
		return statusUnknown
	}
	return 0
}

// pers returns all windows of the given events, the shortest first.
func pers(events []*usage) []time.Duration {
	all := map[time.Duration]bool{}
	for _, u := range events {
		for _, w := range u.Windows {
			all[w.per] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// flagOf returns the flag of inspect that names the given package.
func flagOf(estimator string) []string {
	if estimator == records.Window.String() {
		return nil
	}
	return []string{"--" + estimator}
}
