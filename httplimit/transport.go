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
	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/pace"
)

// TransportConfig configures NewTransport. Outage is required, and so is at least one of Turns and
// Places.
type TransportConfig struct {
	// Turns schedules when requests may be sent. Each request takes a turn and waits for it.
	Turns *pace.Limiter

	// Places limits how many requests may run at once. A request waits for a place, then for its turn.
	// It releases the place when the body of its response is closed or read to its end. The wait for
	// the turn counts toward MaxHold.
	Places *inflight.Limiter

	// Event returns the event key of a request, for both limiters: requests with the same key share
	// turns and places. It must not return "". nil means the host of the URL in lower case, with
	// the port if the URL has one.
	Event func(*http.Request) string

	// Base sends the requests. nil means http.DefaultTransport.
	Base http.RoundTripper

	// MaxPause is the longest pause that a response can cause, at most a day. 0 means a minute.
	MaxPause time.Duration

	// Outage selects what happens while a limiter does not answer: FailOpen sends the request
	// anyway, and FailClosed returns the limiter's error. It has no default, because either choice
	// can do harm. If the limiter has a Fallback, the Fallback decides, and Outage applies only if
	// the Fallback fails too.
	Outage Outage

	// Log receives a line when an outage, or the use of the Fallback of Places, starts or ends,
	// with the cause. The use of the Fallback of Turns is not logged. nil means slog.Default().
	Log *slog.Logger
}

// transport is the http.RoundTripper that NewTransport returns.
type transport struct {
	cfg      TransportConfig
	outbound *adapter.Outbound
}

// NewTransport returns an http.RoundTripper that makes all requests of a fleet share turns and
// places. It is safe for concurrent use. It sends a request once the request has a place and its
// turn has come. If the request's context is done first, or if the turn would come after the
// deadline, it returns an error and sends nothing. If the place's lease is lost, it cancels the
// request, and the error matches inflight.ErrLost. With FailOpen, the request continues if the
// lease was lost because Redis did not answer.
//
// Each RoundTrip takes a turn of its own. So put the transport inside any client that repeats
// requests: then each redirect and each retry takes a turn. It never repeats a request itself. But
// if Base is an *http.Transport, Base repeats a request without a turn if a reused connection broke
// before any response.
//
// A response with the status 429 or 503 pauses its event's turns in all processes, if the response
// says for how long. The transport looks, in this order, at Retry-After, at the t of RateLimit
// limits with nothing left, and at X-RateLimit-Reset. A time that is in the past or cannot be
// parsed causes no pause. Dates are relative to the Date of the response, so the server's clock may
// be wrong.
//
// NewTransport returns an error if neither Turns nor Places is set, if MaxPause is negative or more
// than a day, if Outage is neither FailOpen nor FailClosed, or if Base is a nil pointer.
func NewTransport(cfg TransportConfig) (http.RoundTripper, error) {
	outbound, err := adapter.NewOutbound("httplimit.NewTransport", adapter.OutboundConfig{
		Turns: cfg.Turns, Places: cfg.Places, MaxPause: cfg.MaxPause, Outage: string(cfg.Outage), Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	if cfg.Base != nil && adapter.IsNil(cfg.Base) {
		return nil, fmt.Errorf("slidegate: httplimit.NewTransport has a nil %T as Base; set one that is not nil, or leave Base out", cfg.Base)
	}
	if cfg.Event == nil {
		cfg.Event = host
	}
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	return &transport{cfg, outbound}, nil
}

// host returns the host in the URL of r in lower case, or "" if there is none.
func host(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	return strings.ToLower(r.URL.Host)
}

// RoundTrip sends r once it has a place and its turn has come.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var place *adapter.Place
	handedOver := false
	defer func() {
		switch {
		case place == nil && r.Body != nil: // Base closes the body of a request that it gets
			_ = r.Body.Close()
		case place != nil && !handedOver:
			place.Release()
		}
	}()
	event := t.cfg.Event(r)
	place, err := t.outbound.Begin(r.Context(), event)
	if err != nil {
		return nil, err
	}
	response, err := t.cfg.Base.RoundTrip(r.WithContext(place.Context))
	if err == nil && response == nil {
		err = errNoResponse
	}
	if err != nil {
		return nil, place.Explain(err)
	}
	response.Request = r
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
		t.outbound.Pause(r.Context(), event, waitIn(response.Header, time.Now()))
	}
	handedOver = t.cfg.Places == nil || hold(response, place)
	return response, nil
}

var errNoResponse = errors.New("slidegate: the Base of httplimit.NewTransport returned neither a response nor an error; it must return one of them")

// CloseIdleConnections closes the idle connections of Base. http.Client calls it.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.cfg.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// hold makes the response body hold the place until the body ends, and reports whether there is a
// body. If the caller neither reads the body to its end nor closes it, the place is released when
// the request's context is done, which also makes Base abort the body.
func hold(response *http.Response, place *adapter.Place) bool {
	if conn, ok := response.Body.(io.ReadWriteCloser); ok && response.StatusCode == http.StatusSwitchingProtocols {
		place.OnLost(func(error) { _ = conn.Close() }) // Base does not close the connection when the context is canceled
		response.Body = &upgradedBody{conn, place}
		return true
	}
	// Over HTTP/2, a response without a body can have a Body other than http.NoBody.
	isEmpty := response.Body == nil || response.Body == http.NoBody || response.Request.Method == http.MethodHead ||
		response.StatusCode == http.StatusNoContent || response.StatusCode == http.StatusNotModified ||
		response.ContentLength == 0 && response.ProtoMajor > 0 // stubs may leave ContentLength at 0
	if isEmpty {
		return false
	}
	stop := context.AfterFunc(response.Request.Context(), place.Release)
	response.Body = &heldBody{response.Body, place, stop}
	return true
}

// heldBody is a response body that holds a place.
type heldBody struct {
	io.ReadCloser
	place *adapter.Place
	stop  func() bool
}

// Read reads from the body. At its end, or after an error, Read releases the place.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	if err == io.EOF { // the body is complete, even if the lease has been lost
		return n, io.EOF
	}
	return n, b.place.Explain(err)
}

// Close closes the body, and releases the place.
func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

func (b *heldBody) release() {
	b.stop()
	b.place.Release()
}

// upgradedBody is the connection of a 101 response. It holds a place until it is closed.
type upgradedBody struct {
	io.ReadWriteCloser
	place *adapter.Place
}

// Close closes the connection, and releases the place.
func (b *upgradedBody) Close() error {
	defer b.place.Release()
	return b.ReadWriteCloser.Close()
}

// CloseWrite calls the connection's CloseWrite, if it has one.
func (b *upgradedBody) CloseWrite() error { return closeWrite(b.ReadWriteCloser) }

// closeWrite shuts down the write side of a connection that supports it.
func closeWrite(conn any) error {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}
