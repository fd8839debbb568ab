package main

import (
	"context"
	_ "embed" // for the help

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/replay"
)

//go:embed replay.txt
var replayHelp string

// Help is shown by slidegate replay --help.
func (replayCommand) Help() string { return replayHelp }

// replayCommand is the command line of replay. Its fields are those of replay.Command.
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
	Picture     flags.Text      `name:"picture" placeholder:"FILE" help:"Also draw a picture there, as SVG or PNG: attempts and admissions over time, and the waits; with --login, also what each budget denied."`
	JSON        bool            `name:"json" help:"Print one JSON object."`
	Redis       flags.Redis     `placeholder:"HOST:PORT" help:"Decide on this Redis, or on the cluster that has these nodes (host:port,host:port), or by a URL such as rediss://user:password@host:6379. What the replay writes there it removes at the end."`
	Files       []flags.Text    `arg:"" optional:"" name:"file" help:"Logs to replay, plain or packed by gzip, in any order; - is the standard input. Without one: a sample that is built in."`
}

// Run replays the files, or the sample, and prints the report.
func (c *replayCommand) Run(ctx context.Context, s cli.Streams) error {
	command := replay.Command(*c)
	return command.Run(ctx, s)
}
