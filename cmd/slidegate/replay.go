package main

import (
	"context"
	_ "embed" // for the sample and the help
	"errors"
	"fmt"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/window"
)

var (
	//go:embed sample.log
	sample string
	//go:embed replay.txt
	replayHelp string
)

// Help is shown by slidegate replay --help.
func (replayCommand) Help() string { return replayHelp }

// replayCommand is the command line of replay.
type replayCommand struct {
	Limits      flags.Limits    `name:"limit" placeholder:"MAX/PER" help:"At most MAX units in any span of PER, such as 1/5s, 5/1h or 20/1d. Repeat it, or write 1/5s,5/1h, for more limits, all of which hold. Without it: 1/5s, 5/1h and 20/1d."`
	Compare     flags.Sets      `placeholder:"MAX/PER,..." help:"Limits to compare with those of other --compare flags, side by side, instead of --limit."`
	Estimator   flags.Estimator `placeholder:"NAME" help:"How limits count: window, the default, holds at most MAX in any span of PER; ar1 keeps one decaying level for each limit, which holds MAX at once and up to 2 x MAX in a span."`
	By          flags.By        `placeholder:"FIELD" help:"What is limited: address, user, path or another field of the log; ip/64 to take IPv6 addresses by their /64; or a regular expression with a group. Without it: the address, or the field event."`
	Login       bool            `help:"Run the login guard of package login over a log of sshd, with the limits that it has by default: by address, by account, and by both."`
	Suggest     bool            `help:"Propose limits: the tightest one, two and three under which hardly anybody honest would have been delayed."`
	DelayHonest flags.Share     `placeholder:"SHARE" help:"At most how many of the honest attempts the limits of --suggest may delay. Honest are those that succeeded, or, where the log does not say, those of the events below the 99th percentile. Without it: 0.1%."`
	TimeField   flags.Text      `placeholder:"FIELD" help:"The field that holds the time, in lines whose fields have names: JSON, logfmt, CSV with a header. Without it: the first with a usual name, such as time or ts."`
	TimeRegex   flags.TimeRegex `placeholder:"REGEX" help:"A regular expression with a group around the time, for lines of any kind; --by is one too then."`
	TimeFormat  flags.Text      `placeholder:"LAYOUT" help:"How the time in --time-field or --time-regex is written: as 2006-01-02 15:04:05 would stand there."`
	Sort        bool            `help:"Put the whole log in order of time first, in memory: about 300 bytes an attempt."`
	SVG         flags.Text      `name:"svg" placeholder:"FILE" help:"Also draw a picture there: attempts and admissions over time, and the waits."`
	JSON        bool            `name:"json" help:"Print one JSON object."`
	Redis       flags.Redis     `placeholder:"HOST:PORT" help:"Decide on this Redis, or on the cluster that has these nodes (host:port,host:port), or by a URL such as rediss://user:password@host:6379. What the replay writes there it removes at the end."`
	Files       []flags.Text    `arg:"" optional:"" name:"file" help:"Logs to replay, plain or packed by gzip, in any order; - is the standard input. Without one: a sample that is built in."`
}

var defaultLimits = flags.Limits{window.Every(5 * time.Second), window.PerHour(5), window.PerDay(20)}

// sets are those that the replay compares: one, unless --compare names several.
func (c *replayCommand) sets() (ss flags.Sets, err error) {
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
func (c *replayCommand) Run(ctx context.Context, s cli.Streams) error {
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
	if err := checkPicture(string(c.SVG)); err != nil {
		return err
	}
	var p *report
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
func (c *replayCommand) watched(ctx context.Context, s cli.Streams, read func(*logs.Reader) error) error {
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
func (c *replayCommand) open(ctx context.Context, o logs.Options) (*logs.Reader, error) {
	if len(c.Files) == 0 {
		return logs.OpenText("the sample", sample, o)
	}
	return logs.Open(ctx, c.files(), o)
}

func (c *replayCommand) files() (names []string) {
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
func (c *replayCommand) replay(ctx context.Context, sets flags.Sets, log *logs.Reader) (*report, error) {
	r, err := newReplay(ctx, sets, c.Estimator.Estimator, c.Redis.Addresses, c.SVG != "", maxQuiet)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.run(ctx, log); err != nil {
		return nil, err
	}
	return c.report(r, log), nil
}
