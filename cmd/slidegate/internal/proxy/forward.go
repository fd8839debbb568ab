package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"sync"
)

// newTransport keeps connections to the server open, as many as requests were under way at once, and changes nothing of what it carries.
func newTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024
	t.DisableCompression = true
	return t
}

// forwarder hands requests of a route on to the server.
func (p *Proxy) forwarder(pattern string, t http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: t, BufferPool: &buffers,
		ErrorLog: slog.NewLogLogger(p.cfg.Log.Handler(), slog.LevelWarn),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			w.WriteHeader(http.StatusBadGateway)
			if !errors.Is(err, context.Canceled) { // the client has gone
				p.failed(r.Context(), pattern, err)
			}
		},
	}
}

// failed tells that the server gave no answer, once a second at most.
func (p *Proxy) failed(ctx context.Context, pattern string, err error) {
	p.metrics.failures.WithLabelValues(pattern).Inc()
	if d, _ := p.quiet.Allow(context.WithoutCancel(ctx), "server"); d.Allowed {
		p.cfg.Log.Error("the server gives no answer, so requests get 502", "to", p.cfg.To.Host, "route", pattern, "err", err)
	}
}

// forwarded are the fields in which a proxy in front tells what it was asked, beside X-Forwarded-For.
var forwarded = []string{"X-Forwarded-Host", "X-Forwarded-Proto"}

// rewrite makes the request that the server gets: as it came, with fields that tell of this proxy and those in front of it, and of nobody else.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	pr.SetURL(p.cfg.To)
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	pr.Out.Host = pr.In.Host
	inFront := p.inFront(pr.In.RemoteAddr)
	if inFront {
		pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"] // to which SetXForwarded adds
	}
	pr.SetXForwarded()
	for _, name := range forwarded {
		if told := pr.In.Header[name]; inFront && len(told) > 0 {
			pr.Out.Header[name] = told
		}
	}
}

// inFront reports whether a connection comes from a proxy in front of this one.
func (p *Proxy) inFront(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	return err == nil && slices.ContainsFunc(p.cfg.Behind, func(n netip.Prefix) bool { return n.Contains(peer.Addr().Unmap().WithZone("")) })
}

// buffers are what bodies are copied through.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

// Get is a buffer that nobody uses.
func (b *bufferPool) Get() []byte {
	if kept, ok := b.pool.Get().(*[]byte); ok {
		return *kept
	}
	return make([]byte, 32<<10)
}

// Put keeps a buffer for later.
func (b *bufferPool) Put(buffer []byte) { b.pool.Put(&buffer) }
