package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/isnil"
	"github.com/slidegate/slidegate/internal/outbound"
	"github.com/slidegate/slidegate/internal/place"
	"github.com/slidegate/slidegate/pace"
)

// TransportConfig configures a Transport. Outage is required, and so is at least one of Turns and
// Places.
type TransportConfig struct {
	// Turns schedules when requests may be sent. Each request takes one turn, and waits for it.
	Turns *pace.Limiter

	// Places limits how many requests may run at once. A request waits for a place, then for its turn.
	// It releases the place when the body of its response is closed or read to its end. The wait for
	// the turn counts toward MaxHold.
	Places *inflight.Limiter

	// Event returns the event key of a request for both limiters: requests with the same key share
	// turns and places. It must not return "". nil means the host of the URL in lower case, with the
	// port if the URL has one.
	Event func(*http.Request) string

	// Base sends the requests. nil means http.DefaultTransport.
	Base http.RoundTripper

	// MaxPause is the longest pause that a response can cause, up to a day. 0 means a minute.
	MaxPause time.Duration

	// Outage sets what to do while a limiter does not answer: FailOpen sends the request anyway, and
	// FailClosed returns the limiter's error. It has no default, because either can do damage. If the
	// limiter has a Fallback, the Fallback decides first.
	Outage Outage

	// Log receives the start and end of outages, and of decisions by the Fallback of Places, each
	// with its cause. It does not report decisions by the Fallback of Turns. nil means slog.Default().
	Log *slog.Logger
}

// Transport is an http.RoundTripper that lets the requests of a fleet share turns and places.
// Create it with NewTransport. It is safe for concurrent use.
//
// Each RoundTrip takes its own turn. So put the Transport inside anything that repeats requests:
// then the redirects of an http.Client take turns, and so do the retries of a client around it. A
// Transport never repeats a request itself. But an *http.Transport as Base does, without a turn, if
// a reused connection broke before any response.
//
// A response with status 429 or 503 pauses the turns of its event in all processes, if it says
// until when: in Retry-After, in the t of a RateLimit field with nothing left, or in
// X-RateLimit-Reset, in this order. A time that is in the past or cannot be parsed pauses nothing.
// Dates are relative to the Date of the response, so the server's clock may be wrong.
type Transport struct {
	cfg   TransportConfig
	calls *outbound.Calls
}

// NewTransport returns a Transport. It returns an error if neither Turns nor Places is set, if
// MaxPause is not from 0 to a day, if Outage is neither FailOpen nor FailClosed, or if Base is a
// nil pointer.
func NewTransport(cfg TransportConfig) (*Transport, error) {
	calls, err := outbound.New("httplimit.Transport", outbound.Config{
		Turns: cfg.Turns, Places: cfg.Places, MaxPause: cfg.MaxPause, Outage: string(cfg.Outage), Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	if cfg.Base != nil && isnil.Value(cfg.Base) {
		return nil, fmt.Errorf("slidegate: httplimit.Transport has a nil %T as Base; set one that is not nil, or leave Base out", cfg.Base)
	}
	if cfg.Event == nil {
		cfg.Event = host
	}
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	return &Transport{cfg, calls}, nil
}

// host returns the host of a request, or "" if there is none.
func host(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	return strings.ToLower(r.URL.Host)
}

// RoundTrip sends a request once it has a place and its turn has come. If its context ends first,
// or if the turn would come after the deadline, it returns an error and sends nothing. If the lease
// of the place is lost, it cancels the request, and the error matches inflight.ErrLost. With
// FailOpen, the request continues if the lease was lost because Redis did not answer. RoundTrip
// panics if t is nil, or was not created with NewTransport.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t == nil || t.calls == nil {
		panic("slidegate: this Transport is nil or zero; create it with httplimit.NewTransport")
	}
	event, held, err := t.begin(r)
	if err != nil {
		return nil, err
	}
	handedOver := false
	defer func() {
		if !handedOver {
			held.Release()
		}
	}()
	response, err := t.cfg.Base.RoundTrip(r.WithContext(held.Context))
	if err == nil && response == nil {
		err = errNoResponse
	}
	if err != nil {
		return nil, held.Explain(err)
	}
	response.Request = r
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
		t.calls.Pause(r.Context(), event, waitIn(response.Header, time.Now()))
	}
	handedOver = t.cfg.Places == nil || hold(response, held)
	return response, nil
}

var errNoResponse = errors.New("slidegate: the Base of httplimit.Transport returned neither a response nor an error; it must return one of them")

// begin waits for a place and a turn. If it fails, it closes the body of the request, as RoundTrip
// must.
func (t *Transport) begin(r *http.Request) (event string, held *place.Held, err error) {
	defer func() {
		if held == nil && r.Body != nil {
			_ = r.Body.Close()
		}
	}()
	event = t.cfg.Event(r)
	held, err = t.calls.Begin(r.Context(), event)
	return event, held, err
}

// CloseIdleConnections closes the idle connections of Base. http.Client calls it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.cfg.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// hold makes the body of a response hold the place until the body ends, and reports whether there
// is a body. If nobody reads or closes it, the place is released when the context of the request
// ends, which makes Base abort the body.
func hold(response *http.Response, held *place.Held) bool {
	if conn, ok := response.Body.(io.ReadWriteCloser); ok && response.StatusCode == http.StatusSwitchingProtocols {
		held.OnLost(func(error) { _ = conn.Close() }) // Base leaves the connection to the caller, even after the context has ended
		response.Body = &upgradedBody{conn, held}
		return true
	}
	if isEmpty(response) {
		return false
	}
	stop := context.AfterFunc(response.Request.Context(), held.Release)
	response.Body = &heldBody{response.Body, held, stop}
	return true
}

// isEmpty reports whether a response has no body. Over HTTP/2, its Body can then still be one
// without bytes.
func isEmpty(r *http.Response) bool {
	return r.Body == nil || r.Body == http.NoBody || r.Request.Method == http.MethodHead ||
		r.StatusCode == http.StatusNoContent || r.StatusCode == http.StatusNotModified ||
		r.ContentLength == 0 && r.ProtoMajor > 0 // responses of stubs may not have a length
}

// heldBody is the body of a response that holds a place.
type heldBody struct {
	io.ReadCloser
	held *place.Held
	stop func() bool
}

// Read releases the place at the end of the body, and after an error.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	if err == io.EOF { // the body is complete, even if the lease was lost meanwhile
		return n, io.EOF
	}
	return n, b.held.Explain(err)
}

// Close closes the body, and releases the place.
func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

func (b *heldBody) release() {
	b.stop()
	b.held.Release()
}

// upgradedBody is the connection of a 101 response, which holds a place until it is closed.
type upgradedBody struct {
	io.ReadWriteCloser
	held *place.Held
}

// Close closes the connection, and releases the place.
func (b *upgradedBody) Close() error {
	defer b.held.Release()
	return b.ReadWriteCloser.Close()
}

// CloseWrite calls CloseWrite of the connection, if it has one.
func (b *upgradedBody) CloseWrite() error { return closeWrite(b.ReadWriteCloser) }

// closeWrite shuts down the write side of a connection that supports it.
func closeWrite(conn any) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}
