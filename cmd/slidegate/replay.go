package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/window"
)

// patience is how long Redis may take over one call.
const patience = 5 * time.Second

// replayCommand is the command line of replay.
type replayCommand struct {
	Limits limits    `name:"limit" placeholder:"MAX/PER" help:"At most MAX units in any span of PER, such as 1/5s, 5/1h or 20/1d. Repeat it for more limits. Without it: 1/5s, 5/1h and 20/1d."`
	Redis  addresses `placeholder:"HOST:PORT" help:"Decide on this Redis, or on the cluster that has these nodes (host:port,host:port). What the replay writes there it removes at the end. Passwords and TLS are not supported yet."`
	JSON   bool      `name:"json" help:"Print one JSON object."`
	Files  []string  `arg:"" optional:"" name:"file" help:"Logs to replay, the oldest first. Without one: a sample that is built in."`
}

// limits are those of all --limit flags, each of which may hold several after commas.
type limits []window.Limit

// Decode adds the limits of one flag.
func (ls *limits) Decode(c *kong.DecodeContext) error {
	return eachValue(c, "5/1h", func(s string) error {
		l, err := window.ParseLimit(s)
		for _, other := range *ls {
			if err == nil && l.Per == other.Per {
				err = fmt.Errorf("%v and %s have the same window; keep the tighter one", other, s)
			}
		}
		*ls = append(*ls, l)
		return err
	})
}

// addresses are the host:port of a Redis, or of nodes of one cluster.
type addresses []string

// Decode adds the addresses of one flag.
func (as *addresses) Decode(c *kong.DecodeContext) error {
	return eachValue(c, "127.0.0.1:6379", func(s string) error {
		*as = append(*as, s)
		if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
			return fmt.Errorf("%q is no address of a Redis; write host:port, as in 127.0.0.1:6379", s)
		}
		return nil
	})
}

// eachValue takes a list apart. An empty value is no empty list: it comes from a variable that is not set.
func eachValue(c *kong.DecodeContext, example string, add func(string) error) error {
	if c.Scan.Peek().InferredType().IsAny(kong.EOLToken, kong.FlagToken) {
		return fmt.Errorf("its value is missing; write one, as in %s", example)
	}
	for s := range strings.SplitSeq(c.Scan.Pop().String(), ",") {
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}

// Help is shown by slidegate replay --help.
func (replayCommand) Help() string {
	return `Decides every attempt in a log at the time written there, as if the limits had been in force, and prints what would have been denied, by which limit, and for how long.

A FILE is either of these, recognised by its content:

  - the log of sshd, in syslog or journalctl -o short-iso form; the event is the address
  - lines time,event or time,event,units, such as 2025-03-04T05:06:07Z,alice,3; the time may be in seconds since 1970

A log without years is read as one that begins in 2001; from December to January the year goes up. A line that cannot be read, or is longer than 1 MiB, is skipped and counted.

In a log of sshd, an attempt is a line "Failed METHOD for USER from ADDRESS port PORT", or the same with Accepted: a limit decides before the password is checked, so successes count too. "message repeated N times" is N attempts. No other line is an attempt, such as "Invalid user", "Connection closed" and those of PAM or of other programs.

Without a /var/log/auth.log, ask the journal (the unit is sshd on some systems):

    journalctl -u ssh -o short-iso > ssh.log

A limit of more than 60 units counts in buckets of a sixtieth of the window, shown after an @ as in 100/1d@24m: a unit is forgotten up to that much late, and never more is admitted.

In JSON, spans are in milliseconds. An event is "never": true, and has no longest_wait_ms, if all that it was denied asked for more units than a limit holds. denied_more is how many events were denied beyond those in denied_most, years_assumed how many attempts stand in lines without a year.

Examples:

    slidegate replay
    slidegate replay /var/log/auth.log
    slidegate replay --limit 1/5s --limit 5/1h --json /var/log/auth.log
    slidegate replay --redis 127.0.0.1:6379 /var/log/auth.log`
}

// Run replays the files, or the sample, and prints the report.
func (c *replayCommand) Run(ctx context.Context, out io.Writer) error {
	r, err := newReplay(c)
	if err != nil {
		return err
	}
	if len(c.Redis) > 0 {
		if r.client, err = connect(c.Redis); err != nil {
			return err
		}
		defer r.client.Close()
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	return r.finish().print(out, c.JSON)
}

// A replay decides the attempts of its files one after the other, at the times that the files tell.
type replay struct {
	files    []string
	limits   []window.Limit
	client   rueidis.Client // nil: decide in memory
	limiter  *window.Limiter
	now      time.Time // the time of the attempt at hand
	calendar calendar
	events   map[string]*tally
	report   report
}

// tally is what became of one event.
type tally struct {
	attempts, denied int
	longest          time.Duration
}

func newReplay(c *replayCommand) (*replay, error) {
	r := &replay{files: c.Files, limits: c.Limits, events: map[string]*tally{}}
	r.report.Sample = len(c.Files) == 0
	r.report.DefaultLimits = len(c.Limits) == 0
	r.report.Files = c.Files
	r.report.Redis = c.Redis
	if r.report.DefaultLimits {
		r.limits = []window.Limit{window.Every(5 * time.Second), window.PerHour(5), window.PerDay(20)}
	}
	for _, l := range r.limits {
		r.report.Limits = append(r.report.Limits, limitReport{Limit: l})
	}
	return r, checkFiles(c.Files)
}

// run reads the files and removes what it wrote to Redis, whatever happens.
func (r *replay) run(ctx context.Context) error {
	if err := r.makeLimiter(); err != nil {
		return err
	}
	err := r.readAll(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted after %s", number(r.report.Lines, "line"))
	}
	if r.client == nil {
		return err
	}
	left := r.forget(context.WithoutCancel(ctx))
	if left == nil {
		return err
	}
	if err == nil {
		err = left
	}
	return fmt.Errorf("%w; keys named %s:* may stay there, for at most the longest limit and a day", err, r.report.Limiter)
}

// makeLimiter makes the limiter, in Redis under a name that no other run has.
func (r *replay) makeLimiter() (err error) {
	config := window.Config{Name: "replay", Limits: r.limits, Now: func() time.Time { return r.now }}
	if r.client == nil {
		r.limiter, err = window.NewLocal(config)
		return err
	}
	config.Name = "slidegate-replay-" + strings.ToLower(rand.Text())
	r.report.Limiter = config.Name
	r.limiter, err = window.New(r.client, config)
	return err
}

// connect finds out by itself whether the addresses are of one server or of a cluster.
func connect(to addresses) (rueidis.Client, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:      to,
		Dialer:           net.Dialer{Timeout: patience},
		ConnWriteTimeout: patience,
		AlwaysPipelining: true, // else an interrupt would close the connection, and a late call could follow the removal
		DisableCache:     true,
	})
	if err == nil {
		return client, nil
	}
	remedy := "name one that needs no password and no TLS, which are not supported yet"
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		remedy = "correct it"
	}
	cause, _, _ := strings.Cut(err.Error(), ", ") // NOAUTH goes on for long
	return nil, fmt.Errorf("--redis %s does not answer as a Redis or one cluster (%s); %s, or leave out --redis to decide in memory",
		strings.Join(to, ","), cause, remedy)
}

// failed says what an error of Redis means to a replay. What the library says about the count is for those who go on.
func (r *replay) failed(err error) error {
	cause := err.Error()
	for _, e := range []error{window.ErrOutage, window.ErrUncertain} {
		if _, after, found := strings.Cut(cause, e.Error()+": "); found {
			cause = after
		}
	}
	return fmt.Errorf("--redis %s failed after %s (%s); replay again when it works, or leave out --redis to decide in memory",
		strings.Join(r.report.Redis, ","), number(r.report.Lines, "line"), cause)
}

// forget removes all events from Redis.
func (r *replay) forget(ctx context.Context) error {
	for event := range r.events {
		ctx, cancel := context.WithTimeout(ctx, patience)
		err := r.limiter.Reset(ctx, event)
		cancel()
		if err != nil {
			return r.failed(err)
		}
	}
	return nil
}

// decide asks the limiter for each attempt of a line, and counts the answers.
func (r *replay) decide(ctx context.Context, a attempt) error {
	t := r.events[a.event]
	if t == nil {
		t = &tally{}
		r.events[strings.Clone(a.event)] = t // not a part of the line, which it would keep
	}
	r.now = a.at
	r.report.spans(a)
	for range a.times {
		d, err := r.ask(ctx, a)
		if err != nil {
			return err
		}
		t.attempts++
		r.report.count(a, d)
		if !d.Allowed {
			t.denied++
			t.longest = max(t.longest, d.RetryAfter)
		}
	}
	return nil
}

// ask has the limiter decide. Units that can never be admitted are a denial like any other, with no wait to name.
func (r *replay) ask(ctx context.Context, a attempt) (window.Decision, error) {
	if r.client != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	d, err := r.limiter.AllowN(ctx, a.event, a.units)
	if errors.Is(err, window.ErrExceedsLimit) {
		return window.Decision{}, nil
	}
	if err != nil && r.client != nil {
		err = r.failed(err)
	}
	return d, err
}
