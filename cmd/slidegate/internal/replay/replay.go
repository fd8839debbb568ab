// Package replay shows what limits or the login guard would have done to the attempts in a log.
package replay

import (
	"context"
	_ "embed" // for the sample
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/window"
)

//go:embed sample.log
var sample string

// Command represents "slidegate replay" and its flags.
type Command struct {
	Limits     flags.Limits     `name:"limit" placeholder:"MAX/PER" help:"At most MAX units in any window of length PER. For several limits, repeat the flag or write 1/5s,5/1h. Default: 1/5s,5/1h,20/1d."`
	Compare    flags.Sets       `placeholder:"MAX/PER,..." help:"A set of limits to compare with those of other --compare flags, instead of --limit."`
	Estimator  flags.Estimator  `placeholder:"NAME" help:"How limits count: by windows (window), or by decaying levels (ar1). Default: window."`
	By         flags.By         `placeholder:"FIELD" help:"What to limit by: a field such as user; ip/64 for IPv6 networks; or a regular expression with one group. Default: the address."`
	Login      bool             `help:"Replay a log of sshd through the login guard of package login, with its default limits."`
	TimeField  flags.Text       `placeholder:"FIELD" help:"The field that holds the time, in JSON, logfmt or CSV. Default: the first with a usual name."`
	TimeRegex  flags.TimeRegex  `placeholder:"REGEX" help:"A regular expression with one group around the time, for lines of any format."`
	TimeFormat flags.Text       `placeholder:"LAYOUT" help:"The layout of the time, as in Go's package time: 2006-01-02 15:04:05."`
	Sort       bool             `help:"Sort the log by time first, in memory."`
	Picture    flags.Text       `name:"picture" placeholder:"FILE" help:"Also draw a chart to FILE (.svg)."`
	JSON       bool             `name:"json" help:"Print the report as one JSON object."`
	Redis      flags.Redis      `placeholder:"HOST:PORT" help:"Decide on this Redis instead of in memory: host:port, nodes of a cluster, or a URL."`
	RedisFiles flags.RedisFiles `embed:""`
	Files      []flags.Text     `arg:"" optional:"" name:"file" help:"The logs, plain or compressed with gzip; - is the standard input. Default: a built-in sample."`
}

//go:embed help.txt
var help string

// Help returns the text of slidegate replay --help.
func (Command) Help() string { return help }

var defaultLimits = flags.Limits{window.Every(5 * time.Second), window.PerHour(5), window.PerDay(20)}

// sets returns the sets of limits to replay. There is only one, unless --compare is given several
// times.
func (c *Command) sets() (ss flags.Sets, err error) {
	switch {
	case len(c.Compare) > 100 && c.Picture != "":
		return nil, errors.New("--picture: it shows at most 100 sets of limits; leave out some of --compare")
	case len(c.Compare) > 0 && len(c.Limits) > 0:
		return nil, errors.New("--limit and --compare cannot be combined; write the limits of --limit as one more --compare")
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

// Run replays the files or the sample, and prints the report.
func (c *Command) Run(ctx context.Context, s cli.Streams) error {
	if c.Login {
		return c.runLogin(ctx, s)
	}
	sets, err := c.sets()
	if err != nil {
		return err
	}
	var p *Report
	err = c.opened(ctx, s, func(log *logs.Reader) (err error) {
		p, err = c.replay(ctx, sets, log)
		return err
	})
	if err != nil {
		return err
	}
	err = p.draw()
	return errors.Join(p.print(s.Out, c.JSON), err)
}

// opened checks the name of the picture, opens the log and calls read.
func (c *Command) opened(ctx context.Context, s cli.Streams, read func(*logs.Reader) error) error {
	if err := charts.Check(string(c.Picture), c.files()...); err != nil {
		return err
	}
	o := logs.Options{
		By: c.By.By, TimeField: string(c.TimeField), TimeRegex: c.TimeRegex.Regexp, TimeFormat: string(c.TimeFormat),
		Accounts: c.Login, Sort: c.Sort, Stdin: s.In,
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

// interrupted returns an error about an interrupt before the first attempt. If ctx is not done, it
// returns err.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted before the first attempt")
	}
	return err
}

// interruptedAfter returns an error about an interrupt after the given number of attempts. If err
// is nil or ctx is not done, it returns err.
func interruptedAfter(ctx context.Context, err error, attempts int) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted after %s", output.Count(attempts, "attempt"))
	}
	return err
}

// replay decides on the attempts of the log and returns the report.
func (c *Command) replay(ctx context.Context, sets flags.Sets, log *logs.Reader) (*Report, error) {
	if len(c.Redis.InitAddress) > 0 { // the environment may name files that are meant for other commands
		if err := c.Redis.Read(c.RedisFiles.Names()); err != nil {
			return nil, err
		}
	}
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
