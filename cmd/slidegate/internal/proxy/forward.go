package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/slidegate/slidegate/internal/problem"
)

// newTransport keeps connections to the server open, as many as requests were under way at once, and changes nothing of what it carries.
func newTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024
	t.DisableCompression = true
	return t
}

// forwarder hands requests of a route on to the server. Of upgrades it knows but websockets: whoever could change to HTTP/2 would have requests that nobody counts.
func (p *Proxy) forwarder(pattern string, t http.RoundTripper) http.Handler {
	forward := &httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: t, BufferPool: &buffers, ErrorLog: log.New(brokenOff{p}, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if b, ok := r.Body.(*body); ok && b.failed.Load() {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			problem.Write(w, http.StatusBadGateway, noAnswer)
			if !errors.Is(err, context.Canceled) { // the client has gone
				p.failed(pattern, err)
			}
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			r.Header.Del("Upgrade")
		}
		forward.ServeHTTP(&answer{ResponseWriter: w, fields: w.Header().Clone()}, r)
	})
}

var noAnswer = problem.Details{Title: "Bad Gateway", Status: http.StatusBadGateway, Detail: "The server gives no answer. The request counts all the same."}

// answer keeps the fields of the limiter, which ReverseProxy clears after a 1xx of the server.
type answer struct {
	http.ResponseWriter
	fields  http.Header
	cleared bool
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader adds the fields to those of the server.
func (a *answer) WriteHeader(status int) {
	if status < http.StatusOK {
		a.cleared = true
	} else if h := a.Header(); a.cleared {
		for name, values := range a.fields {
			h[name] = append(values, h[name]...)
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

// body is what a client sends. Where that breaks off or is no HTTP, the server is not to blame.
type body struct {
	io.ReadCloser
	in, out *http.Request
	failed  atomic.Bool
}

// Read takes note of a failure, and hands trailers on, which are there at the end.
func (b *body) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if err == io.EOF {
		for name := range b.out.Trailer {
			b.out.Trailer[name] = b.in.Trailer[name]
		}
	} else if err != nil {
		b.failed.Store(true)
	}
	return n, err
}

// failed tells that the server gave no answer, once a second at most.
func (p *Proxy) failed(pattern string, err error) {
	p.metrics.failures.WithLabelValues(pattern).Inc()
	p.seldom("the server gives no answer, so requests get 502", "to", p.cfg.To.Host, "route", pattern, "err", err)
}

// seldom tells of an error, each once a second at most.
func (p *Proxy) seldom(what string, attributes ...any) {
	if d, _ := p.quiet.Allow(context.Background(), what); d.Allowed {
		p.cfg.Log.Error(what, attributes...)
	}
}

// brokenOff is where ReverseProxy tells of answers that break off.
type brokenOff struct{ p *Proxy }

// Write tells of one, or not.
func (b brokenOff) Write(line []byte) (int, error) {
	b.p.seldom("an answer of the server breaks off", "to", b.p.cfg.To.Host, "err", strings.TrimSpace(string(line)))
	return len(line), nil
}

// forwarded are the fields in which a proxy in front tells what it was asked, beside X-Forwarded-For.
var forwarded = []string{"X-Forwarded-Host", "X-Forwarded-Proto"}

// rewrite makes the request that the server gets: as it came, with fields that tell of this proxy and those in front of it, and of nobody else.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	pr.SetURL(p.cfg.To)
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	pr.Out.Host = pr.In.Host
	if pr.Out.Body != nil {
		pr.Out.Body = &body{ReadCloser: pr.Out.Body, in: pr.In, out: pr.Out}
	}
	maps.DeleteFunc(pr.Out.Header, ofProxies)
	maps.DeleteFunc(pr.Out.Trailer, ofProxies)
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

// ofProxies reports whether a server can take a field for one that only proxies write: with underscores, as CGI has them, it is the same.
func ofProxies(name string, _ []string) bool {
	switch strings.ToLower(strings.ReplaceAll(name, "_", "-")) {
	case "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto":
		return true
	}
	return false
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
