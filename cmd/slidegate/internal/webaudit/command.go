package webaudit

import (
	"context"
	_ "embed" // for the help text
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/audit"
	"github.com/slidegate/slidegate/cmd/slidegate/charts"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// Command represents "slidegate audit" and its flags.
type Command struct {
	URL         flags.Text    `arg:"" optional:"" help:"The URL to send requests to, such as http://127.0.0.1:8080/login."`
	Claims      flags.Limits  `placeholder:"MAX/PER" help:"The limits that the service claims to keep, such as 20/10s. For several, repeat the flag or write 1/5s,5/1m."`
	Own         bool          `help:"Confirm that the service is yours. Required unless it is on this machine or in a private network."`
	Method      flags.Text    `placeholder:"METHOD" help:"The HTTP method of the requests. Default: GET."`
	Header      []string      `placeholder:"NAME:VALUE" sep:"none" help:"A header of the requests. For several, repeat the flag."`
	Body        flags.Text    `placeholder:"TEXT" help:"The body of the requests."`
	Denied      []int         `placeholder:"STATUS" help:"The HTTP status of a denied request, instead of 429. For several, write 429,503."`
	MaxRequests int           `placeholder:"N" default:"5000" help:"Send at most N requests. Default: 5000."`
	MaxTime     time.Duration `placeholder:"TIME" default:"5m" help:"Run for at most TIME, such as 90s or 10m. Default: 5m."`
	Picture     flags.Text    `name:"picture" placeholder:"FILE" help:"Also draw a chart to FILE (.svg or .png): the requests allowed in one window, over time."`
	JSON        bool          `name:"json" xor:"form" help:"Print the report as one JSON object, with every attempt."`
	Markdown    bool          `xor:"form" help:"Print the report as Markdown."`
}

//go:embed help.txt
var help string

// Help returns the text of slidegate audit --help.
func (Command) Help() string { return help }

// statusFound is the exit status of an audit with findings.
const statusFound cli.ExitStatus = 3

// Run audits the service and prints the report.
func (c *Command) Run(ctx context.Context, s cli.Streams) error {
	cfg, err := c.config()
	if err = errors.Join(err, charts.Check(string(c.Picture))); err != nil {
		return err
	}
	a, err := New(ctx, cfg)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(s.Err, a.Announce())
	r, err := a.Run(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(charts.Save(string(c.Picture), r.chart().Draw), c.print(s.Out, r)); err != nil || len(r.Findings) == 0 {
		return err
	}
	return statusFound
}

// config returns the configuration that the flags specify.
func (c *Command) config() (cfg Config, err error) {
	if c.URL == "" {
		return cfg, errors.New("the URL is missing; write the one of the service, as in slidegate audit http://127.0.0.1:8080/login --claims 20/10s")
	}
	if len(c.Claims) == 0 {
		return cfg, errors.New("--claims is missing; write the limits that the service claims to keep, as in --claims 20/10s")
	}
	cfg = Config{
		Claims: c.Claims, Own: c.Own, Method: string(c.Method), Header: http.Header{}, Body: []byte(c.Body),
		Denied: c.Denied, MaxRequests: c.MaxRequests, MaxTime: c.MaxTime,
	}
	if err := errors.Join(c.checkNumbers(), addFields(cfg.Header, c.Header)); err != nil {
		return cfg, err
	}
	cfg.URL, err = parseURL(string(c.URL))
	return cfg, err
}

// checkNumbers returns an error if the bounds allow no requests, or if a status is invalid.
func (c *Command) checkNumbers() error {
	if c.MaxRequests <= 0 || c.MaxTime <= 0 {
		return fmt.Errorf("--max-requests %d and --max-time %v have to be more than 0", c.MaxRequests, c.MaxTime)
	}
	for _, status := range c.Denied {
		if status < 200 || status > 599 {
			return fmt.Errorf("--denied %d is not an HTTP status; write it as in --denied 429,503", status)
		}
	}
	return nil
}

// addFields parses header fields and adds them to h.
func addFields(h http.Header, fields []string) error {
	for _, field := range fields {
		name, value, found := strings.Cut(field, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		control := func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
		switch {
		case !found:
			return fmt.Errorf("--header %q has no colon; write it as in 'Authorization: Bearer x'", field)
		case !isToken(name) || strings.ContainsFunc(value, control):
			return fmt.Errorf("--header %q is not a header field: its name has an invalid character, or its value has a control character", field)
		}
		h.Add(name, value)
	}
	return nil
}

// print writes the report as text, as JSON or as Markdown.
func (c *Command) print(out io.Writer, r *Report) error {
	switch {
	case c.JSON:
		return output.JSON(out, r)
	case c.Markdown:
		_, err := io.WriteString(out, r.markdown())
		return err
	}
	_, err := io.WriteString(out, r.text(output.ScreenOf(out), c.next(r)))
	return err
}

// next returns the arguments of the command to try next. If the audit found nothing, this is the
// same audit with another output format. Otherwise, it is a proxy that enforces the claims.
func (c *Command) next(r *Report) []string {
	claims := strings.Join(c.Claims.Texts(), ",")
	switch {
	case len(r.Findings) > 0:
		return []string{"proxy", "--to " + logs.ShellQuoted(r.origin()), "--limit " + claims}
	case c.Picture == "":
		return append(c.repeatCommand(claims), "--picture audit.svg")
	}
	return append(c.repeatCommand(claims), "--markdown")
}

// repeatCommand returns the arguments of the same audit, quoted for a shell.
func (c *Command) repeatCommand(claims string) []string {
	words := []string{"audit", logs.ShellQuoted(string(c.URL)), "--claims " + claims}
	flag := func(name, value string) { words = append(words, name+" "+logs.ShellQuoted(value)) }
	if c.Own {
		words = append(words, "--own")
	}
	if c.Method != "" {
		flag("--method", string(c.Method))
	}
	for _, field := range c.Header {
		flag("--header", field)
	}
	if c.Body != "" {
		flag("--body", string(c.Body))
	}
	for _, status := range c.Denied {
		flag("--denied", strconv.Itoa(status))
	}
	return words
}

// chart returns the chart of the audit.
func (r *Report) chart() charts.Audit {
	return charts.Audit{Title: fmt.Sprintf("Audit of %s under %s", r.URL, r.claimed()), Took: r.Took, Trails: r.trails()}
}

// trails returns the allowed requests for each claim. A request is certainly in the window from
// when its response arrived until Per after it was sent, minus a tolerance for clocks.
func (r *Report) trails() (all []charts.Trail) {
	for _, c := range r.Claims {
		trail := charts.Trail{Claim: c.Limit.String(), Max: c.Limit.Max, Per: c.Limit.Per}
		for _, a := range r.Attempts {
			if a.Answer == audit.AnswerAllowed {
				trail.Allowed = append(trail.Allowed, charts.Span{From: a.Came, To: a.Sent + c.Limit.Per - c.Limit.Per/1000 - time.Millisecond})
			}
		}
		all = append(all, trail)
	}
	return all
}
