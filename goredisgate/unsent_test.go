package goredisgate

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/test/redistest"
)

var errRefused = errors.New("refused")

// refusing implements redis.Limiter. It refuses every command.
type refusing struct{}

func (refusing) Allow() error       { return errRefused }
func (refusing) ReportResult(error) {}

// TestUnsent checks that a call that is refused before it is written is reported as unsent,
// whatever the error.
func TestUnsent(t *testing.T) {
	for name, options := range map[string]*redis.Options{
		"Limiter":   {Addr: redistest.Addr(t), Limiter: refusing{}},
		"OnConnect": {Addr: redistest.Addr(t), OnConnect: func(context.Context, *redis.Conn) error { return errRefused }},
		"Dialer":    {Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errRefused }},
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(options)
			defer client.Close()
			for _, err := range append(sendTo(t, client, 1), sendTo(t, client, 3)...) {
				if !errors.As(err, new(*connection.UnsentError)) {
					t.Errorf("%v is not reported as unsent", err)
				}
			}
		})
	}
}

// sendTo sends n calls with client, and returns their errors.
func sendTo(t *testing.T, client *redis.Client, n int) (errs []error) {
	t.Helper()
	var commands []*command
	var together []redis.Cmder
	for range n {
		c := build(t.Context(), &connection.ScriptCall{Command: "EVAL", Script: "return {1}", Keys: []string{redistest.Key(t)}, Verb: "allow", Units: []string{"1"}})
		commands, together = append(commands, c), append(together, c)
	}
	failure := send(t.Context(), client, together)
	for _, c := range commands {
		_, err := result(c, failure)
		errs = append(errs, err)
	}
	return errs
}
