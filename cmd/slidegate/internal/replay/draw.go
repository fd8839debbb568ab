package replay

import (
	"fmt"
	"io"
	"strings"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/picture"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
)

// draw writes the chart, if Picture names a file.
func (p *Report) draw() error {
	if p.Picture == "" {
		return nil
	}
	d := picture.Picture{Title: p.title(), Zone: p.zone(), Yearless: p.yearless(), Timeline: p.timeline}
	for _, s := range p.Sets {
		d.Sets = append(d.Sets, picture.Set{Name: s.limits(), Waits: s.waits, Denied: s.Denied})
	}
	return picture.Save(p.Picture, func(w io.Writer, f sheet.Format) error { return picture.Draw(w, f, d) })
}

// draw writes the chart, if Picture names a file.
func (p *LoginReport) draw() error {
	if p.Picture == "" {
		return nil
	}
	title := fmt.Sprintf("%s: %d of %s denied", p.source(), p.Denied, output.Count(p.Allowed+p.Denied, "login attempt"))
	d := picture.Logins{Title: title, Zone: p.zone(), Yearless: p.yearless(), Timeline: p.timeline, Waits: p.waits}
	for _, b := range p.Budgets {
		d.Budgets = append(d.Budgets, picture.Budget{Name: string(b.Budget), Limits: strings.Join(b.Limits, ", "), Denied: b.Denied})
	}
	return picture.Save(p.Picture, func(w io.Writer, f sheet.Format) error { return picture.DrawLogins(w, f, d) })
}

// zone returns the time zone that a chart shows. It is empty for a log without years, whose times
// have no zone.
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
