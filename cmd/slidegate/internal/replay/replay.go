// Package replay shows what limits, or the login guard, would have done to a log. It also proposes
// limits.
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

// Command is a replay as the flags of slidegate replay describe it.
type Command struct {
	Limits      flags.Limits    // none: 1/5s, 5/1h and 20/1d
	Compare     flags.Sets      // sets of limits side by side, instead of Limits
	Estimator   flags.Estimator // how limits count
	By          flags.By        // what is limited
	Login       bool            // run the login guard over a log of sshd, instead of limits
	Suggest     bool            // propose limits, instead of replaying any
	DelayHonest flags.Share     // how many honest attempts the proposed limits may delay
	TimeField   flags.Text      // the field that holds the time; empty: a usual name
	TimeRegex   flags.TimeRegex // finds the time in lines of any kind
	TimeFormat  flags.Text      // the layout of the time; empty: a known form
	Sort        bool            // put the whole log in order of time first, in memory
	Picture     flags.Text      // a file for a picture; empty: none
	JSON        bool            // print JSON instead of text
	Redis       flags.Redis     // no address: decide in memory
	Files       []flags.Text    // none: the sample; - is the standard input
}

var defaultLimits = flags.Limits{window.Every(5 * time.Second), window.PerHour(5), window.PerDay(20)}

// sets are those that the replay compares: one, unless --compare names several.
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

// watched reads the log with a progress bar, if there is a terminal, and takes it away.
func (c *Command) watched(ctx context.Context, s cli.Streams, read func(*logs.Reader) error) error {
	o := logs.Options{
		By: c.By.By, TimeField: string(c.TimeField), TimeRegex: c.TimeRegex.Regexp, TimeFormat: string(c.TimeFormat),
		Accounts: c.Login, Sort: c.Sort, Stdin: s.In,
	}
	if bar := newProgress(s.Err, c.files()); bar != nil {
		defer func() { _ = bar.Clear() }() // where it cannot draw, it has not drawn
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

// interrupted is what to say of an error that may only mean that the user has had enough.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted before the first attempt")
	}
	return err
}

// interruptedAfter is the same of an error in the middle of the log.
func interruptedAfter(ctx context.Context, err error, attempts int) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted after %s", output.Count(attempts, "attempt"))
	}
	return err
}

// replay decides the attempts of the log, and reports.
func (c *Command) replay(ctx context.Context, sets flags.Sets, log *logs.Reader) (*Report, error) {
	r, err := newReplay(ctx, sets, c.Estimator.Estimator, c.Redis.Addresses, c.Picture != "", maxQuiet)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.run(ctx, log); err != nil {
		return nil, err
	}
	return c.report(r, log), nil
}
