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

	"github.com/slidegate/slidegate/internal/adapter"
)

// newTransport returns a transport that keeps up to 1024 idle connections to the server. It does
// not modify requests or responses.
func newTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024
	t.DisableCompression = true
	return t
}

// forwarder returns a handler that forwards the requests of a route to the server. It allows
// connections to be upgraded only to websockets. After an upgrade to HTTP/2, a client could send
// requests that the proxy does not count.
func (p *Proxy) forwarder(pattern string, t http.RoundTripper) http.Handler {
	forward := &httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: t, BufferPool: &buffers, ErrorLog: log.New(copyErrorLog{p}, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if b, ok := r.Body.(*body); ok && b.failed.Load() {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			adapter.WriteProblem(w, http.StatusBadGateway, noAnswer)
			if !errors.Is(err, context.Canceled) { // the client has gone
				p.failed(pattern, err)
			}
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			r.Header.Del("Upgrade")
		}
		forward.ServeHTTP(&responseWriter{ResponseWriter: w, limitHeaders: w.Header().Clone()}, r)
	})
}

var noAnswer = adapter.Problem{Title: "Bad Gateway", Status: http.StatusBadGateway, Detail: "The server does not answer. The request still counts."}

// responseWriter preserves the limiter's header fields, because ReverseProxy clears them after a
// 1xx response of the server.
type responseWriter struct {
	http.ResponseWriter
	limitHeaders http.Header
	cleared      bool
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (a *responseWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader adds the limiter's header fields to those of the server.
func (a *responseWriter) WriteHeader(status int) {
	if status < http.StatusOK {
		a.cleared = true
	} else if h := a.Header(); a.cleared {
		for name, values := range a.limitHeaders {
			h[name] = append(values, h[name]...)
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

// body wraps the body of a client's request. It records a failure to read the body, so that the
// proxy does not blame the server for a broken request.
type body struct {
	io.ReadCloser
	in, out *http.Request
	failed  atomic.Bool
}

// Read reads from the body and records failures. At the end of the body, it copies the trailers.
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

// failed counts a request that the server did not answer. It logs such failures at most once a
// second.
func (p *Proxy) failed(pattern string, err error) {
	p.metrics.failures.WithLabelValues(pattern).Inc()
	p.logThrottled("the server does not answer, so requests get 502", "to", p.cfg.To.Host, "route", pattern, "err", err)
}

// logThrottled logs an error, but the same message at most once a second.
func (p *Proxy) logThrottled(message string, attributes ...any) {
	if d, _ := p.logLimiter.Allow(context.Background(), message); d.Allowed {
		p.cfg.Log.Error(message, attributes...)
	}
}

// copyErrorLog receives the log lines that ReverseProxy writes about truncated responses.
type copyErrorLog struct{ p *Proxy }

// Write logs a line with logThrottled.
func (b copyErrorLog) Write(line []byte) (int, error) {
	b.p.logThrottled("a response of the server is cut off", "to", b.p.cfg.To.Host, "err", strings.TrimSpace(string(line)))
	return len(line), nil
}

// forwardedHeaders lists the header fields, in addition to X-Forwarded-For, in which a trusted
// proxy describes the request that it received.
var forwardedHeaders = []string{"X-Forwarded-Host", "X-Forwarded-Proto"}

// rewrite prepares the request to the server. It is the client's request, but its forwarding fields
// come only from this proxy and the trusted proxies in front of it.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	pr.SetURL(p.cfg.To)
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	pr.Out.Host = pr.In.Host
	if pr.Out.Body != nil {
		pr.Out.Body = &body{ReadCloser: pr.Out.Body, in: pr.In, out: pr.Out}
	}
	maps.DeleteFunc(pr.Out.Header, ofProxies)
	maps.DeleteFunc(pr.Out.Trailer, ofProxies)
	trusted := p.fromTrustedProxy(pr.In.RemoteAddr)
	if trusted {
		pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"] // SetXForwarded appends to this field
	}
	pr.SetXForwarded()
	for _, name := range forwardedHeaders {
		if values := pr.In.Header[name]; trusted && len(values) > 0 {
			pr.Out.Header[name] = values
		}
	}
}

// ofProxies reports whether a server could mistake a field for one that only proxies set.
// Underscores count as hyphens, because CGI does not distinguish the two.
func ofProxies(name string, _ []string) bool {
	switch strings.ToLower(strings.ReplaceAll(name, "_", "-")) {
	case "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto":
		return true
	}
	return false
}

// fromTrustedProxy reports whether a connection comes from one of the proxies in Config.Behind.
func (p *Proxy) fromTrustedProxy(remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	return err == nil && slices.ContainsFunc(p.cfg.Behind, func(n netip.Prefix) bool { return n.Contains(peer.Addr().Unmap().WithZone("")) })
}

// buffers holds the buffers through which bodies are copied.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

// Get returns a free buffer.
func (b *bufferPool) Get() []byte {
	if kept, ok := b.pool.Get().(*[]byte); ok {
		return *kept
	}
	return make([]byte, 32<<10)
}

// Put returns a buffer to the pool.
func (b *bufferPool) Put(buffer []byte) { b.pool.Put(&buffer) }
