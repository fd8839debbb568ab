package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/felixge/httpsnoop"
)

// withHijack adds a Hijack method to w if w lacks one but unwraps to a ResponseWriter that has one.
// Otherwise, a handler could unwrap w and bypass a hook on Hijack.
func withHijack(w http.ResponseWriter) http.ResponseWriter {
	if _, can := w.(http.Hijacker); can {
		return w
	}
	for inner := w; ; {
		u, wraps := inner.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			return w
		}
		inner = u.Unwrap()
		if _, can := inner.(http.Hijacker); can {
			return hijackable{w, http.NewResponseController(w)}
		}
	}
}

// hijackable is a ResponseWriter that also has the Hijack and flush methods of the ResponseWriters
// that it unwraps to.
type hijackable struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap returns the wrapped ResponseWriter. http.ResponseController calls it.
func (h hijackable) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Hijack hijacks the connection.
func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.control.Hijack() }

// FlushError flushes the response.
func (h hijackable) FlushError() error { return h.control.Flush() }

// Flush is like FlushError, but cannot report an error.
func (h hijackable) Flush() { _ = h.FlushError() }

// response records a response's status, which is the first status that any goroutine sends. It also
// counts the bytes of the body.
type response struct {
	status atomic.Int32
	bytes  atomic.Int64
}

// setStatus records the status if none has been recorded yet.
func (r *response) setStatus(status int) { r.status.CompareAndSwap(0, int32(status)) } //nolint:gosec // net/http refuses more than three digits

// finalStatus returns the response's status. Call it when the handler is done: if no status was
// recorded, net/http sends 200.
func (r *response) finalStatus() int {
	r.setStatus(http.StatusOK)
	return int(r.status.Load())
}

// hooks returns hooks for all methods that can start a response.
func (r *response) hooks() httpsnoop.Hooks {
	return httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				next(status)                                                            // panics if the status is invalid
				if status >= http.StatusOK || status == http.StatusSwitchingProtocols { // other statuses below 200 are interim
					r.setStatus(status)
				}
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				r.setStatus(http.StatusOK)
				n, err := next(b)
				r.bytes.Add(int64(n))
				return n, err
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(from io.Reader) (int64, error) {
				n, err := next(from)
				r.bytes.Add(n)
				if n > 0 { // otherwise nothing was written, so the response has not started
					r.setStatus(http.StatusOK)
				}
				return n, err
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { r.setStatus(http.StatusOK); next() }
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, buffer, err := next()
				if err == nil {
					r.setStatus(http.StatusSwitchingProtocols)
				}
				return conn, buffer, err
			}
		},
	}
}
