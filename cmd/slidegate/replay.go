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

// Help returns the text of slidegate replay --help.
func (replayCommand) Help() string { return replayHelp }

// replayCommand is the command line of replay. It has the same fields as replay.Command.
type replayCommand struct {
	Limits      flags.Limits    `name:"limit" placeholder:"MAX/PER" help:"At most MAX units in any window of length PER, such as 1/5s, 5/1h or 20/1d. For several limits, which all hold, repeat the flag or write 1/5s,5/1h. Default: 1/5s, 5/1h and 20/1d."`
	Compare     flags.Sets      `placeholder:"MAX/PER,..." help:"A set of limits to compare side by side with those of other --compare flags, instead of --limit."`
	Estimator   flags.Estimator `placeholder:"NAME" help:"How limits count. window allows at most MAX in any window of length PER. ar1 keeps one decaying level per limit: it allows MAX at once, and up to 2 x MAX in one PER. Default: window."`
	By          flags.By        `placeholder:"FIELD" help:"What to limit by: address, user, path or another field of the log; ip/64 to group IPv6 addresses by their /64; or a regular expression with one group. Default: the address, or the field event."`
	Login       bool            `help:"Replay a log of sshd through the login guard of package login, with its default limits: by address, by account, and by both."`
	Suggest     bool            `help:"Propose limits: the tightest set of one, of two and of three limits that would have delayed hardly any honest attempt."`
	DelayHonest flags.Share     `placeholder:"SHARE" help:"The share of honest attempts, in percent, that the limits of --suggest may delay at most. Honest attempts are those that succeeded. If the log has no results, they are those of the events below the 99th percentile by attempts. Default: 0.1%."`
	TimeField   flags.Text      `placeholder:"FIELD" help:"The field that holds the time, in formats with named fields: JSON, logfmt, CSV with a header. Default: the first field with a usual name, such as time or ts."`
	TimeRegex   flags.TimeRegex `placeholder:"REGEX" help:"A regular expression with one group around the time, for lines of any format. --by must then be a regular expression, too."`
	TimeFormat  flags.Text      `placeholder:"LAYOUT" help:"The layout of the time in --time-field or --time-regex: how the log would write 2006-01-02 15:04:05, as in Go's package time."`
	Sort        bool            `help:"Sort the whole log by time first, in memory: about 300 bytes per attempt."`
	Picture     flags.Text      `name:"picture" placeholder:"FILE" help:"Also draw a chart into FILE (.svg or .png): attempts and admissions over time, and the waits. With --login, also the denials of each budget."`
	JSON        bool            `name:"json" help:"Print the report as one JSON object."`
	Redis       flags.Redis     `placeholder:"HOST:PORT" help:"Decide on this Redis server instead of in memory; or on a cluster with these nodes (host:port,host:port), or by a URL such as rediss://user:password@host:6379. The replay deletes its keys at the end."`
	Files       []flags.Text    `arg:"" optional:"" name:"file" help:"The logs to replay, plain or compressed with gzip, in any order; - is the standard input. Default: a built-in sample."`
}

// Run replays the files, or the sample, and prints the report.
func (c *replayCommand) Run(ctx context.Context, s cli.Streams) error {
	command := replay.Command(*c)
	return command.Run(ctx, s)
}
