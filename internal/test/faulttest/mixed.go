package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/slidegate/slidegate/window"
)

// Mixed is a limiter whose Allow makes other calls for the event first. In turn, they need every
// script of package window, and they give back what they count. So if every call is executed exactly
// once, as many units are in use as Allow has allowed.
type Mixed struct {
	*window.Limiter
	second   *window.Limiter // for joint decisions
	counting *window.Limiter // counts denied attempts
	calls    atomic.Int64
}

// NewMixed returns a Mixed with the given configuration.
func NewMixed(conn *window.Connection, cfg window.Config) (*Mixed, error) {
	m, errs := &Mixed{}, [3]error{}
	m.Limiter, errs[0] = window.New(conn, cfg)
	name := cfg.Name
	cfg.Name = name + ".second"
	m.second, errs[1] = window.New(conn, cfg)
	cfg.Name, cfg.CountDenied = name+".counting", true
	m.counting, errs[2] = window.New(conn, cfg)
	return m, errors.Join(errs[:]...)
}

// Allow makes the other calls, and then an attempt for one unit.
func (m *Mixed) Allow(ctx context.Context, event string) (window.Decision, error) {
	var err error
	switch m.calls.Add(1) % 4 {
	case 0:
		_, err = m.Inspect(ctx, event)
	case 1:
		err = m.joint(ctx, event)
	case 2:
		var d window.Decision
		if d, err = m.AllowUpTo(ctx, event, 2); err == nil {
			err = m.Refund(ctx, event, d)
		}
	case 3:
		var d window.Decision
		if d, err = m.counting.Allow(ctx, event); err == nil {
			err = m.counting.Refund(ctx, event, d)
		}
	}
	if err != nil {
		return window.Decision{}, err
	}
	return m.Limiter.Allow(ctx, event)
}

// joint counts a unit under two limiters at once, and gives both back at once.
func (m *Mixed) joint(ctx context.Context, event string) error {
	d, err := window.AllowAll(ctx, window.Check{Limiter: m.Limiter, Event: event}, window.Check{Limiter: m.second, Event: event})
	if err != nil || !d.Allowed {
		return fmt.Errorf("%+v: %w", d, err)
	}
	return errors.Join(window.UndoAll(ctx, window.Undo{Limiter: m.Limiter, Event: event, Decision: d.Decisions[0]},
		window.Undo{Limiter: m.second, Event: event, Decision: d.Decisions[1]})...)
}

// Left returns how many units the other calls have left in use, which must be 0.
func (m *Mixed) Left(ctx context.Context, event string) (units int64) {
	for _, l := range []*window.Limiter{m.second, m.counting} {
		units += must(l.Inspect(ctx, event)).Limits[0].Used
	}
	return units
}
