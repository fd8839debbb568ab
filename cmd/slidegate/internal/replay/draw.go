package replay

import (
	"fmt"
	"strings"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
)

// draw writes the chart if Picture names a file. After an error, the report names no picture.
func (p *Report) draw() (err error) {
	d := charts.Replay{Title: p.title(), Zone: p.zone(), Yearless: p.yearless(), Timeline: p.timeline}
	for _, s := range p.Sets {
		d.Sets = append(d.Sets, charts.Set{Name: s.limits(), Waits: s.waits, Denied: s.Denied})
	}
	if err = charts.Save(p.Picture, d.Draw); err != nil {
		p.Picture = ""
	}
	return err
}

// draw writes the chart if Picture names a file. After an error, the report names no picture.
func (p *LoginReport) draw() (err error) {
	title := fmt.Sprintf("%s: %d of %s denied", p.source(), p.Denied, output.Count(p.Allowed+p.Denied, "login attempt"))
	sets := []charts.Set{{Waits: p.waits, Denied: p.Denied}}
	d := charts.Logins{Replay: charts.Replay{Title: title, Zone: p.zone(), Yearless: p.yearless(), Sets: sets, Timeline: p.timeline}}
	for _, b := range p.Budgets {
		d.Budgets = append(d.Budgets, charts.Budget{Name: string(b.Budget), Limits: strings.Join(b.Limits, ", "), Denied: b.Denied})
	}
	if err = charts.Save(p.Picture, d.Draw); err != nil {
		p.Picture = ""
	}
	return err
}

// zone returns the time zone that the chart shows. It is empty for a log without years, because its
// times have no zone.
func (p *logReport) zone() string {
	if p.yearless() {
		return ""
	}
	return "UTC"
}

func (p *Report) title() string {
	title := fmt.Sprintf("%s: %s", p.source(), output.Count(p.Attempts, "attempt"))
	if len(p.Sets) == 1 {
		title = fmt.Sprintf("%s: %d of %s denied", p.source(), p.Sets[0].Denied, output.Count(p.Attempts, "attempt"))
	}
	if p.Estimator == "ar1" {
		title += " by levels (ar1)"
	}
	return title
}
