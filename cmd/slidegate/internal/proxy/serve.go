package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	headerTimeout     = 10 * time.Second // how long a client may take to send the header
	idleTimeout       = 2 * time.Minute  // how long a connection may be idle
	denialLogInterval = time.Minute      // between two log lines about denials
)

// Serve serves clients and operators until ctx is done, and then finishes the requests in progress.
// It closes both listeners before it returns.
func (p *Proxy) Serve(ctx context.Context, public, admin net.Listener) error {
	clients, operators := p.server(p), p.server(p.Admin())
	failed := make(chan error, 2)
	var both sync.WaitGroup
	both.Go(func() { failed <- clients.Serve(public) })
	both.Go(func() { failed <- operators.Serve(admin) })
	defer func() { _ = operators.Close(); both.Wait() }()
	tick := time.NewTicker(denialLogInterval)
	defer tick.Stop()
	for before := int64(0); ; {
		select {
		case err := <-failed:
			return errors.Join(err, clients.Close())
		case <-tick.C:
			before = p.logDenials(before)
		case <-ctx.Done():
			p.logDenials(before)
			return p.drain(ctx, clients)
		}
	}
}

func (p *Proxy) server(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ErrorLog: slog.NewLogLogger(p.cfg.Log.Handler(), slog.LevelWarn)}
}

// drain stops accepting requests, and waits for those in progress. After the grace period, it
// aborts them.
func (p *Proxy) drain(ctx context.Context, clients *http.Server) error {
	p.draining.Store(true)
	p.cfg.Log.Info("accepting no more requests; finishing those under way", "grace", p.grace)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.grace)
	defer cancel()
	err := clients.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		p.cfg.Log.Warn("cutting off the requests that are still under way")
		err = clients.Close()
	}
	p.cfg.Log.Info("done")
	return err
}

// logDenials logs how many requests have been denied since the previous call, if any. It returns
// the total number of denials.
func (p *Proxy) logDenials(before int64) int64 {
	r := p.denied.Report()
	if r.Denied > before {
		most := make([]string, min(3, len(r.Most)))
		for i, e := range r.Most[:len(most)] {
			most[i] = fmt.Sprintf("%s: %d by %s since %s", e.Event, e.Denied, e.Limit, e.Since.Local().Format(time.TimeOnly))
		}
		what := "requests were denied"
		if p.cfg.Shadow {
			what = "requests would have been denied"
		}
		p.cfg.Log.Info(what, "denied", r.Denied-before, "events", r.Events, "most", strings.Join(most, "; "))
	}
	return r.Denied
}
