package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/felixge/httpsnoop"
)

// answer sees with which status a handler answers: the first that goes out, whatever it says later, and from whichever goroutine. It also
// counts the bytes of the body.
type answer struct {
	status atomic.Int32
	bytes  atomic.Int64
}

func (a *answer) begin(status int) { a.status.CompareAndSwap(0, int32(status)) } //nolint:gosec // net/http refuses more than three digits

// code is the status once the handler is done.
func (a *answer) code() int {
	a.begin(http.StatusOK)
	return int(a.status.Load())
}

// hooks are at all that can begin an answer.
func (a *answer) hooks() httpsnoop.Hooks {
	return httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				next(status)                                                            // which panics where there is no such status
				if status >= http.StatusOK || status == http.StatusSwitchingProtocols { // others are not the answer yet
					a.begin(status)
				}
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				a.begin(http.StatusOK)
				n, err := next(b)
				a.bytes.Add(int64(n))
				return n, err
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(from io.Reader) (int64, error) {
				n, err := next(from)
				a.bytes.Add(n)
				if n > 0 { // else no answer went out
					a.begin(http.StatusOK)
				}
				return n, err
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { a.begin(http.StatusOK); next() }
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, buffer, err := next()
				if err == nil {
					a.begin(http.StatusSwitchingProtocols)
				}
				return conn, buffer, err
			}
		},
	}
}
