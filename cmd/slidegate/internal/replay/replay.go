// Package replay shows what limits, or the login guard, would have done to a log. It can also
// propose limits.
package replay

import (
	"context"
	_ "embed" // for the sample
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/picture"
	"github.com/slidegate/slidegate/window"
)

//go:embed sample.log
var sample string

// Command holds the flags of slidegate replay.
type Command struct {
	Limits      flags.Limits    // empty: 1/5s, 5/1h and 20/1d
	Compare     flags.Sets      // sets of limits side by side, instead of Limits
	Estimator   flags.Estimator // how limits count
	By          flags.By        // what to limit by
	Login       bool            // replay a log of sshd through the login guard, instead of limits
	Suggest     bool            // propose limits, instead of replaying any
	DelayHonest flags.Share     // the share of honest attempts that proposed limits may delay at most
	TimeField   flags.Text      // the field that holds the time; empty: a usual name
	TimeRegex   flags.TimeRegex // finds the time in lines of any format
	TimeFormat  flags.Text      // the layout of the time; empty: a known form
	Sort        bool            // sort the whole log by time first, in memory
	Picture     flags.Text      // the file for a chart; empty: no chart
	JSON        bool            // print JSON instead of text
	Redis       flags.Redis     // without an address: decide in memory
	Files       []flags.Text    // empty: the sample; - is the standard input
}

var defaultLimits = flags.Limits{window.Every(5 * time.Second), window.PerHour(5), window.PerDay(20)}

// sets returns the sets of limits to replay: one, unless --compare is given several times.
func (c *Command) sets() (ss flags.Sets, err error) {
	switch {
	case len(c.Compare) > 0 && len(c.Limits) > 0:
		return nil, errors.New("--limit and --compare do not go together; write the limits of --limit as one more --compare")
	case len(c.Compare) > 0:
		ss = c.Compare
	case len(c.Limits) > 0:
		ss = flags.Sets{c.Limits}
	default:
		ss = flags.Sets{defaultLimits}
	}
	for _, set := range ss {
		err = errors.Join(err, c.Estimator.Check(set))
	}
	return ss, err
}

// Run replays the files, or the sample, and prints the report.
func (c *Command) Run(ctx context.Context, s cli.Streams) error {
	switch {
	case c.Suggest:
		return c.runSuggest(ctx, s)
	case c.DelayHonest.Text != "":
		return errNoSuggest
	case c.Login:
		return c.runLogin(ctx, s)
	}
	sets, err := c.sets()
	if err != nil {
		return err
	}
	if err := picture.Check(string(c.Picture)); err != nil {
		return err
	}
	var p *Report
	err = c.watched(ctx, s, func(log *logs.Reader) (err error) {
		p, err = c.replay(ctx, sets, log)
		return err
	})
	if err != nil {
		return err
	}
	if err := p.draw(); err != nil {
		return err
	}
	return p.print(s.Out, c.JSON)
}

// watched opens the log and calls read, with a progress bar on a terminal, which it removes at the
// end.
func (c *Command) watched(ctx context.Context, s cli.Streams, read func(*logs.Reader) error) error {
	o := logs.Options{
		By: c.By.By, TimeField: string(c.TimeField), TimeRegex: c.TimeRegex.Regexp, TimeFormat: string(c.TimeFormat),
		Accounts: c.Login, Sort: c.Sort, Stdin: s.In,
	}
	if bar := newProgress(s.Err, c.files()); bar != nil {
		defer func() { _ = bar.Clear() }() // a bar that cannot be removed was never drawn
		o.Progress = bar
	}
	log, err := c.open(ctx, o)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer log.Close()
	return read(log)
}

// open opens the files or the sample.
func (c *Command) open(ctx context.Context, o logs.Options) (*logs.Reader, error) {
	if len(c.Files) == 0 {
		return logs.OpenText("the sample", sample, o)
	}
	return logs.Open(ctx, c.files(), o)
}

func (c *Command) files() (names []string) {
	for _, f := range c.Files {
		names = append(names, string(f))
	}
	return names
}

// interrupted returns an error that reports an interrupt before the first attempt, or err if the
// context has not ended.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted before the first attempt")
	}
	return err
}

// interruptedAfter returns an error that reports an interrupt after this many attempts, or err if
// it is nil or the context has not ended.
func interruptedAfter(ctx context.Context, err error, attempts int) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted after %s", output.Count(attempts, "attempt"))
	}
	return err
}

// replay decides the attempts of the log, and returns the report.
func (c *Command) replay(ctx context.Context, sets flags.Sets, log *logs.Reader) (*Report, error) {
	r, err := newReplay(ctx, sets, c.Estimator.Estimator, c.Redis.Addresses, c.Picture != "", maxIdle)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.run(ctx, log); err != nil {
		return nil, err
	}
	return c.report(r, log), nil
}
