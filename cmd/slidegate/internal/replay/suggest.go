package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/suggest"
)

// SuggestReport represents the outcome of replay --suggest. --json prints it.
type SuggestReport struct {
	logReport
	By          string       `json:"by,omitempty"`
	DelayHonest string       `json:"delay_honest"` // the value of the flag --delay-honest
	BySuccess   bool         `json:"by_success"`   // true: honest attempts are those that succeeded; false: honest attempts are those of events below the 99th percentile
	Honest      int          `json:"honest"`
	MayWait     int          `json:"honest_may_wait"`
	Attack      bool         `json:"attack"` // whether the log shows an attack; if not, there are no sets
	Sets        []suggestion `json:"sets"`   // each has more limits than the previous one, and stops more
	Picture     string       `json:"picture,omitempty"`

	share    float64
	proposal *suggest.Proposal
	busiest  string // the event with the most attempts
	most     int    // the number of its attempts
}

// suggestion represents a proposed set of limits.
type suggestion struct {
	Limits  flags.Limits `json:"limits"`
	Stopped int          `json:"denied"`
	Delayed int          `json:"honest_denied"`
}

// runSuggest searches for limits instead of replaying the log under given ones.
func (c *Command) runSuggest(ctx context.Context, s cli.Streams) error {
	if err := c.checkSuggest(); err != nil {
		return err
	}
	if err := charts.Check(string(c.Picture)); err != nil {
		return err
	}
	var (
		h *suggest.History
		p *SuggestReport
	)
	err := c.watched(ctx, s, func(log *logs.Reader) (err error) {
		if h, err = suggest.Read(log); err != nil {
			return interrupted(ctx, err)
		}
		p = &SuggestReport{logReport: c.readFrom(log), By: c.By.Text, DelayHonest: c.DelayHonest.Text, Picture: string(c.Picture), share: c.DelayHonest.Of}
		return nil
	})
	if err != nil {
		return err
	}
	p.BySuccess, p.Honest = h.BySuccess, h.Honest
	p.busiest, p.most = h.Busiest()
	if p.proposal, err = propose(ctx, s.Err, h, p.share); err != nil {
		return err
	}
	p.MayWait, p.Attack, p.Sets = p.proposal.MayWait, p.proposal.Attack, []suggestion{} // an empty list, because nil would be null in JSON
	for _, set := range p.proposal.Sets {
		p.Sets = append(p.Sets, suggestion{set.Limits, set.Stopped, set.Delayed})
	}
	if err := p.draw(); err != nil {
		return err
	}
	return p.print(s.Out, c.JSON)
}

// propose searches for limits and reports its progress. If the log shows no attack, it proposes
// nothing.
func propose(ctx context.Context, to io.Writer, h *suggest.History, share float64) (*suggest.Proposal, error) {
	defer reportProgress(to, func() string { return output.Count(h.Tried(), "set") + " of limits tried, of a few hundred" })()
	p, err := h.Propose(ctx, share)
	if err != nil {
		return nil, interruptedAfter(ctx, err, h.Attempts)
	}
	if !p.Attack {
		p.Sets = nil
	}
	return p, nil
}

// checkSuggest returns an error if a flag is given that does not work with a search for limits.
func (c *Command) checkSuggest() error {
	if c.DelayHonest.Text == "" {
		c.DelayHonest = flags.DefaultShare
	}
	return refuse("suggest", []conflict{
		{c.Login, "login", "the login guard has its own limits"},
		{len(c.Limits) > 0, "limit", "--suggest searches for limits"},
		{len(c.Compare) > 0, "compare", "--suggest searches for limits"},
		{c.Estimator.Estimator != "", "estimator", "proposed limits count by windows"},
		{len(c.Redis.InitAddress) > 0, "redis", "it decides in memory, with the same result as on Redis"},
	})
}

// print writes the report as text, or as one JSON object.
func (p *SuggestReport) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return output.JSON(out, p)
	}
	screen := output.ScreenOf(out)
	var b strings.Builder
	p.printSample(&b, "slidegate replay --suggest")
	output.Table(&b, 0, [][]string{{"log", p.source() + ", " + p.lines()}, {"period", p.period()}, {"attempts", p.attempts()}, {"honest", p.honest()}})
	p.printSuggestions(&b, screen)
	p.printNotes(&b, screen)
	printPicture(&b, screen, p.Picture)
	verdict, next := p.end()
	screen.End(&b, verdict, next...)
	_, err := io.WriteString(out, b.String())
	return err
}

// honest says which attempts are considered honest, how many there are, and how many of them may be
// delayed.
func (p *SuggestReport) honest() string {
	which := "succeeded"
	if !p.BySuccess {
		which = "are of events below the 99th percentile"
	}
	return fmt.Sprintf("%d that %s; %d may be delayed (%s)", p.Honest, which, p.MayWait, p.DelayHonest)
}

func (p *SuggestReport) printSuggestions(b *strings.Builder, screen output.Screen) {
	if !p.Attack && !p.isShort() {
		printNote(b, screen, "No event would have lost two thirds of its attempts, and at least ten, to limits that hardly delay honest attempts. "+
			"The busiest is %s, with %d of %s. An attack from many addresses may not show; try --by with another field.",
			logs.Shown(p.busiest), p.most, output.Count(p.Attempts, "attempt"))
	}
	if len(p.Sets) == 0 {
		return
	}
	rows := [][]string{{"would stop", "", "would delay", "  flags"}}
	for _, s := range p.Sets {
		rows = append(rows, []string{
			strconv.Itoa(s.Stopped), fmt.Sprintf("%.1f %%", 100*float64(s.Stopped)/float64(p.Attempts)),
			fmt.Sprintf("%d honest", s.Delayed), "  --limit " + strings.Join(s.Limits.Texts(), ","),
		})
	}
	b.WriteString("\n")
	output.Table(b, tabwriter.AlignRight, rows)
	if p.MayWait == 0 && p.DelayHonest != "0%" {
		printNote(b, screen, "There are too few honest attempts for that share: none may be delayed. A longer log gives more reliable limits.")
	}
}

// draw writes the chart of the trade-off if Picture names a file.
func (p *SuggestReport) draw() error {
	d := charts.Tradeoff{
		Title:    fmt.Sprintf("%s: %s", p.source(), output.Count(p.Attempts, "attempt")),
		MayDelay: p.share, Reach: min(1, max(suggest.Reach*p.share, 0.01)), Tried: p.tried(p.proposal.Tried), Proposed: p.tried(p.proposal.Sets),
	}
	return charts.Save(p.Picture, d.Draw)
}

func (p *SuggestReport) tried(sets []suggest.Set) (all []charts.Tried) {
	for _, s := range sets {
		name := strings.Join(flags.Limits(s.Limits).Texts(), ", ")
		all = append(all, charts.Tried{Name: name, Limits: len(s.Limits), Stopped: s.Stopped, Delayed: float64(s.Delayed) / float64(max(1, p.Honest))})
	}
	return all
}

var errNoSuggest = errors.New("--delay-honest needs --suggest; add that flag, or leave out --delay-honest")
