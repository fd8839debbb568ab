package inspect

import (
	"cmp"
	"context"
	"io"
	"strings"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/window"
)

// Overrides represents "slidegate overrides" and its flags.
type Overrides struct {
	Server
	Args struct {
		Name flags.Argument `arg:"" help:"The Name in the limiter's Config."`
	} `embed:""`
	JSON bool `name:"json" help:"Print the overrides as one JSON object."`
}

// Help returns the text of slidegate overrides --help.
func (Overrides) Help() string {
	return "Lists the overrides in force for events of a limiter: what they do, until when, who set them and why. If the key hides an event, because it is long or the limiter has a Secret, its hash is shown after a ~.\n\n" +
		"    slidegate overrides api"
}

// overrideList represents the list of overrides. --json prints it.
type overrideList struct {
	Limiter   string          `json:"limiter"`
	Redis     string          `json:"redis"`
	Overrides []overrideState `json:"overrides"`
}

// overrideState represents an override. --json prints it.
type overrideState struct {
	Event  string    `json:"event,omitempty"` // empty if the key hides the event
	Tag    string    `json:"tag"`             // identifies the event in Redis keys
	Mode   string    `json:"mode"`            // limits, block or unlimited
	Limits []string  `json:"limits,omitempty"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	By     string    `json:"by,omitempty"`
	Why    string    `json:"why"`

	does string
}

// event returns the event or its hash in a form that a terminal can display.
func (o *overrideState) event() string {
	if o.Event == "" {
		return logs.Shown(o.Tag)
	}
	return eventText(o.Event)
}

func newOverrideState(o *window.Override) overrideState {
	st := overrideState{Event: o.Event, Tag: o.Tag, Mode: string(o.Mode), Since: o.Since, Until: o.Until, By: o.By, Why: o.Why, does: does(o)}
	for _, l := range o.Limits {
		st.Limits = append(st.Limits, l.Label())
	}
	return st
}

// Run lists the overrides.
func (c *Overrides) Run(ctx context.Context, s cli.Streams) error {
	of := c.subject(c.Args.Name, "", nil)
	client, err := of.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := of.overridden(client, s.Now)
	if err != nil {
		return err
	}
	all, err := l.Overrides(ctx)
	if err != nil {
		return of.userError(ctx, err)
	}
	list := overrideList{of.Name, of.Redis.String(), []overrideState{}}
	for i := range all {
		list.Overrides = append(list.Overrides, newOverrideState(&all[i]))
	}
	if c.JSON {
		return output.JSON(s.Out, list)
	}
	_, err = io.WriteString(s.Out, list.text())
	return err
}

// text returns the list as a table.
func (l *overrideList) text() string {
	if len(l.Overrides) == 0 {
		return "There is no override in " + l.Limiter + " on " + l.Redis + ".\n"
	}
	rows := [][]string{{"event", "does", "until, UTC", "since, UTC", "by", "why"}}
	for _, o := range l.Overrides {
		rows = append(rows, []string{
			o.event(), o.does, roundUp(o.Until).Format(time.DateTime), o.Since.Format(time.DateTime), cmp.Or(logs.Shown(o.By), "-"), logs.Shown(o.Why),
		})
	}
	var b strings.Builder
	output.Table(&b, 0, rows)
	return b.String()
}
