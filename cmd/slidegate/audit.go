package main

import (
	"context"
	_ "embed" // for the help
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/webaudit"
)

//go:embed audit.txt
var auditHelp string

// Help is shown by slidegate audit --help.
func (auditCommand) Help() string { return auditHelp }

// auditCommand is the command line of audit. Its fields are those of webaudit.Command.
type auditCommand struct {
	URL         flags.Text    `arg:"" optional:"" help:"The service, such as http://127.0.0.1:8080/login."`
	Claims      flags.Limits  `placeholder:"MAX/PER" help:"What it claims to keep, such as 20/10s. Repeat it, or write 1/5s,5/1m, for more."`
	Own         bool          `help:"The service is yours, though it is neither on this machine nor in a private network."`
	Method      flags.Text    `placeholder:"METHOD" help:"The method of requests. Without it: GET."`
	Header      []string      `placeholder:"NAME:VALUE" sep:"none" help:"A header field of requests. Repeat it for more."`
	Body        flags.Text    `placeholder:"TEXT" help:"The body of requests."`
	Denied      []int         `placeholder:"STATUS" help:"The status of a denied request, instead of 429."`
	MaxRequests int           `placeholder:"N" default:"5000" help:"Send at most N requests. Without it: 5000."`
	MaxTime     time.Duration `placeholder:"TIME" default:"5m" help:"Take at most this long. Without it: 5m."`
	Picture     flags.Text    `name:"picture" placeholder:"FILE" help:"Also draw a picture there, as SVG or PNG: what was admitted in one window, over time."`
	JSON        bool          `name:"json" xor:"form" help:"Print one JSON object, with each attempt."`
	Markdown    bool          `xor:"form" help:"Print Markdown."`
}

// Run audits a service, and prints the report.
func (c *auditCommand) Run(ctx context.Context, s cli.Streams) error {
	command := webaudit.Command(*c)
	return command.Run(ctx, s)
}
