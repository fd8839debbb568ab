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

// Help returns the text of slidegate audit --help.
func (auditCommand) Help() string { return auditHelp }

// auditCommand is the command line of audit. It has the same fields as webaudit.Command.
type auditCommand struct {
	URL         flags.Text    `arg:"" optional:"" help:"The URL to send requests to, such as http://127.0.0.1:8080/login."`
	Claims      flags.Limits  `placeholder:"MAX/PER" help:"The limits that the service claims to keep, such as 20/10s. For several, repeat the flag or write 1/5s,5/1m."`
	Own         bool          `help:"Confirm that the service is yours. Required unless it is on this machine or in a private network."`
	Method      flags.Text    `placeholder:"METHOD" help:"The HTTP method of the requests. Default: GET."`
	Header      []string      `placeholder:"NAME:VALUE" sep:"none" help:"A header of the requests. For several, repeat the flag."`
	Body        flags.Text    `placeholder:"TEXT" help:"The body of the requests."`
	Denied      []int         `placeholder:"STATUS" help:"The HTTP status of a denied request, instead of 429. For several, write 429,503."`
	MaxRequests int           `placeholder:"N" default:"5000" help:"Send at most N requests. Default: 5000."`
	MaxTime     time.Duration `placeholder:"TIME" default:"5m" help:"Run for at most TIME, such as 90s or 10m. Default: 5m."`
	Picture     flags.Text    `name:"picture" placeholder:"FILE" help:"Also draw a chart into FILE (.svg or .png): the requests admitted in one window, over time."`
	JSON        bool          `name:"json" xor:"form" help:"Print the report as one JSON object, with every attempt."`
	Markdown    bool          `xor:"form" help:"Print the report as Markdown."`
}

// Run audits a service, and prints the report.
func (c *auditCommand) Run(ctx context.Context, s cli.Streams) error {
	command := webaudit.Command(*c)
	return command.Run(ctx, s)
}
