package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// answer sees with which status a handler answers: the first that goes out, whatever it says later.
type answer struct{ status int }

func (a *answer) begin(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// code is the status once the handler is done.
func (a *answer) code() int {
	a.begin(http.StatusOK)
	return a.status
}

// hooks are at all that can begin an answer.
func (a *answer) hooks() httpsnoop.Hooks {
	return httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				if status >= http.StatusOK || status == http.StatusSwitchingProtocols { // others are not the answer yet
					a.begin(status)
				}
				next(status)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { a.begin(http.StatusOK); return next(b) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(from io.Reader) (int64, error) { a.begin(http.StatusOK); return next(from) }
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
