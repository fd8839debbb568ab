package proxyserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/inspect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxy"
	"github.com/slidegate/slidegate/window"
)

// page returns the configuration of p's page.
func (c *Command) page(p *proxy.Proxy) page.Config {
	w := &web{c, p}
	cfg := page.Config{Title: "slidegate proxy", Links: []string{"healthz", "metrics", "over"}, Open: w.open, Overview: p.Overview}
	if c.AllowReset {
		cfg.Forget = w.forget
	}
	return cfg
}

// web serves the data for the page of a proxy.
type web struct {
	*Command
	proxy *proxy.Proxy
}

// limiter returns the limiter that decides on an event.
func (w *web) limiter(event string) (*window.Limiter, error) {
	l := w.proxy.Limiter(event)
	if l == nil {
		return nil, fmt.Errorf("no route with limits has the event %.80q; write the pattern of a route and who is limited, as in POST /login 198.51.100.7", event)
	}
	return l, nil
}

// open returns a function that reads the state of an event.
func (w *web) open(q page.Query) (page.Poll, error) {
	l, err := w.limiter(q.Event)
	if err != nil {
		return nil, err
	}
	s := &inspect.Subject{Server: inspect.Server{Redis: w.Redis}, Name: string(w.Name), Event: q.Event}
	return func(ctx context.Context) (any, error) {
		st, err := s.State(ctx, l)
		if err == nil && !w.shared() {
			st.Redis = "the memory of this instance"
		}
		return st, err
	}, nil
}

// forget removes the counts of an event.
func (w *web) forget(ctx context.Context, q page.Query) error {
	l, err := w.limiter(q.Event)
	if err != nil {
		return err
	}
	if err := l.Reset(ctx, q.Event); err != nil {
		return errors.New(w.Redis.Redact(err.Error()))
	}
	return nil
}
