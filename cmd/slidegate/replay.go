package main

import (
	"context"
	_ "embed" // for the sample and the help
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
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
	Limits      limits     `name:"limit" placeholder:"MAX/PER" help:"At most MAX units in any span of PER, such as 1/5s, 5/1h or 20/1d. Repeat it, or write 1/5s,5/1h, for more limits, all of which hold. Without it: 1/5s, 5/1h and 20/1d."`
	Compare     sets       `placeholder:"MAX/PER,..." help:"Limits to compare with those of other --compare flags, side by side, instead of --limit."`
	Estimator   estimator  `placeholder:"NAME" help:"How limits count: window, the default, holds at most MAX in any span of PER; ar1 keeps one decaying level for each limit, which holds MAX at once and up to 2 x MAX in a span."`
	By          by         `placeholder:"FIELD" help:"What is limited: address, user, path or another field of the log; ip/64 to take IPv6 addresses by their /64; or a regular expression with a group. Without it: the address, or the field event."`
	Login       bool       `help:"Run the login guard of package login over a log of sshd, with the limits that it has by default: by address, by account, and by both."`
	Suggest     bool       `help:"Propose limits: the tightest one, two and three under which hardly anybody honest would have been delayed."`
	DelayHonest delayShare `placeholder:"SHARE" help:"At most how many of the honest attempts the limits of --suggest may delay. Honest are those that succeeded, or, where the log does not say, those of the events below the 99th percentile. Without it: 0.1%."`
	TimeField   given      `placeholder:"FIELD" help:"The field that holds the time, in lines whose fields have names: JSON, logfmt, CSV with a header. Without it: the first with a usual name, such as time or ts."`
	TimeRegex   timeRegex  `placeholder:"REGEX" help:"A regular expression with a group around the time, for lines of any kind; --by is one too then."`
	TimeFormat  given      `placeholder:"LAYOUT" help:"How the time in --time-field or --time-regex is written: as 2006-01-02 15:04:05 would stand there."`
	Sort        bool       `help:"Put the whole log in order of time first, in memory: about 300 bytes an attempt."`
	SVG         given      `name:"svg" placeholder:"FILE" help:"Also draw a picture there: attempts and admissions over time, and the waits."`
	JSON        bool       `name:"json" help:"Print one JSON object."`
	Redis       addresses  `placeholder:"HOST:PORT" help:"Decide on this Redis, or on the cluster that has these nodes (host:port,host:port), or by a URL such as rediss://user:password@host:6379. What the replay writes there it removes at the end."`
	Files       []given    `arg:"" optional:"" name:"file" help:"Logs to replay, plain or packed by gzip, in any order; - is the standard input. Without one: a sample that is built in."`
}

var errTwice = errors.New("it is given twice; choose one")

// by is the flag --by, with its text for the report.
type by struct {
	logs.By
	text string
}

// Decode reads the flag.
func (b *by) Decode(c *kong.DecodeContext) (err error) {
	if isMissing(c) {
		return errors.New("its value is missing; write one, as in user")
	}
	if b.text != "" {
		return errTwice
	}
	b.text = c.Scan.Pop().String()
	b.By, err = logs.ParseBy(b.text)
	return err
}

// timeRegex is the flag --time-regex.
type timeRegex struct{ *regexp.Regexp }

// Decode reads the flag.
func (r *timeRegex) Decode(c *kong.DecodeContext) (err error) {
	var text given
	if r.Regexp != nil {
		return errTwice
	}
	if err = text.Decode(c); err == nil {
		r.Regexp, err = logs.ParseTimeRegex(string(text))
	}
	return err
}

// maxLimits is how many limits a limiter takes.
const maxLimits = 31

// limits are those of all --limit flags, each of which may hold several after commas.
type limits []window.Limit

// Decode adds the limits of one flag.
func (ls *limits) Decode(c *kong.DecodeContext) error {
	return eachValue(c, "5/1h", ls.add)
}

func (ls *limits) add(s string) error {
	l, err := window.ParseLimit(s)
	if err == nil && len(*ls) == maxLimits {
		err = fmt.Errorf("%s is the limit number %d; a limiter has at most %d", s, maxLimits+1, maxLimits)
	}
	for _, other := range *ls {
		if err == nil && l.Per == other.Per {
			err = fmt.Errorf("%v and %s have the same window; keep the tighter one", other, s)
		}
	}
	*ls = append(*ls, l)
	return err
}

// sets are the limits of all --compare flags: one set a flag.
type sets []limits

// Decode adds the set of one flag.
func (ss *sets) Decode(c *kong.DecodeContext) error {
	var set limits
	err := eachValue(c, "3/10m,20/1d", set.add)
	*ss = append(*ss, set)
	return err
}

// eachValue takes a list apart. An empty value is no empty list: it comes from a variable that is not set.
func eachValue(c *kong.DecodeContext, example string, add func(string) error) error {
	if isMissing(c) {
		return fmt.Errorf("its value is missing; write one, as in %s", example)
	}
	for s := range strings.SplitSeq(c.Scan.Pop().String(), ",") {
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}

// given is a text that must not be empty: an empty one comes from a variable that is not set.
type given string

// Decode reads the text as it is: kong itself would take a file name for UTF-8.
func (g *given) Decode(c *kong.DecodeContext) error {
	if isMissing(c) {
		return errors.New("its value is missing; write one, or leave out the flag")
	}
	if *g != "" {
		return errTwice
	}
	text, ok := c.Scan.Pop().Value.(string)
	if !ok || text == "" {
		return errors.New("its value is empty; write one, or leave it out")
	}
	*g = given(text)
	return nil
}

// isMissing reports whether a flag stands without a value.
func isMissing(c *kong.DecodeContext) bool {
	return c.Scan.Peek().InferredType().IsAny(kong.EOLToken, kong.FlagToken)
}

var defaultLimits = limits{window.Every(5 * time.Second), window.PerHour(5), window.PerDay(20)}

// sets are those that the replay compares: one, unless --compare names several.
func (c *replayCommand) sets() (ss sets, err error) {
	switch {
	case len(c.Compare) > 0 && len(c.Limits) > 0:
		return nil, errors.New("--limit and --compare do not go together; write the limits of --limit as one more --compare")
	case len(c.Compare) > 0:
		ss = c.Compare
	case len(c.Limits) > 0:
		ss = sets{c.Limits}
	default:
		ss = sets{defaultLimits}
	}
	for _, set := range ss {
		err = errors.Join(err, c.Estimator.check(set))
	}
	return ss, err
}

// Run replays the files, or the sample, and prints the report.
func (c *replayCommand) Run(ctx context.Context, s streams) error {
	switch {
	case c.Suggest:
		return c.runSuggest(ctx, s)
	case c.DelayHonest.text != "":
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
	return p.print(s.out, c.JSON)
}

// watched reads the log with a progress bar, if there is a terminal, and takes it away.
func (c *replayCommand) watched(ctx context.Context, s streams, read func(*logs.Reader) error) error {
	o := logs.Options{
		By: c.By.By, TimeField: string(c.TimeField), TimeRegex: c.TimeRegex.Regexp, TimeFormat: string(c.TimeFormat),
		Accounts: c.Login, Sort: c.Sort, Stdin: s.in,
	}
	if bar := newProgress(s.err, c.files()); bar != nil {
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
		return fmt.Errorf("interrupted after %s", number(attempts, "attempt"))
	}
	return err
}

// replay decides the attempts of the log, and reports.
func (c *replayCommand) replay(ctx context.Context, sets sets, log *logs.Reader) (*report, error) {
	r, err := newReplay(ctx, sets, c.Estimator, c.Redis, c.SVG != "", maxQuiet)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.run(ctx, log); err != nil {
		return nil, err
	}
	return c.report(r, log), nil
}
