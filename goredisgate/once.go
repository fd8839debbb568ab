package goredisgate

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/pipeline"
)

// errRepeats is returned if go-redis could send a request twice. No version since v9.19.0 does, and
// go.mod requires a later version, but a future version could.
var errRepeats = errors.New("this version of go-redis sends requests twice although they forbid it; use an older version, v9.20.0 or later, and report this")

// repeats reports whether go-redis repeats a script call that is sent as a single command or in a
// pipeline.
var repeats = sync.OnceValue(func() bool {
	return attempts(1, call) > 1 || attempts(2, call) > 1
})

// call returns a script call, without keys or arguments.
func call() redis.Cmder { return build(context.Background(), &pipeline.ScriptCall{Command: "EVAL"}) }

// attempts returns how often go-redis tries to send n copies of a command, if each try fails with
// an error after which go-redis may retry.
func attempts(n int, cmd func() redis.Cmder) int {
	var tries refusals
	client := redis.NewClient(&redis.Options{Limiter: &tries, Protocol: 2, MinRetryBackoff: -1, MaxRetryBackoff: -1})
	defer func() { _ = client.Close() }()
	commands := make([]redis.Cmder, n)
	for i := range commands {
		commands[i] = cmd()
	}
	_ = send(context.Background(), client, commands)
	return int(tries)
}

// refusals implements redis.Limiter. It counts attempts, and refuses each of them.
type refusals int

// Allow returns an error after which go-redis retries.
func (r *refusals) Allow() error {
	*r++
	return io.EOF
}

// ReportResult does nothing.
func (*refusals) ReportResult(error) {}
