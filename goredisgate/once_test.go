package goredisgate

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/test/redistest"
)

// TestSentOnce checks that the go-redis version in use sends a script call only once, as a single
// command and in a pipeline, where it repeats other commands. Run it with each version of go-redis
// that the package is to support.
func TestSentOnce(t *testing.T) {
	for _, n := range []int{1, 2} {
		if tries := attempts(t, n, func() redis.Cmder { return redis.NewIntSliceCmd(t.Context(), "x") }); tries < 2 {
			t.Errorf("this test proves nothing: %d commands that may be repeated were tried %d times", n, tries)
		}
		if tries := attempts(t, n, call); tries != 1 {
			t.Errorf("%d script calls were tried %d times", n, tries)
		}
	}
}

// call returns a script call, without keys or arguments.
func call() redis.Cmder { return build(context.Background(), &connection.ScriptCall{Command: "EVAL"}) }

// attempts returns how often go-redis tries to send n copies of a command, if each try fails with
// an error after which go-redis may retry.
func attempts(t *testing.T, n int, cmd func() redis.Cmder) int {
	t.Helper()
	var tries refusals
	client := redis.NewClient(&redis.Options{Limiter: &tries, Protocol: 2, MinRetryBackoff: -1, MaxRetryBackoff: -1})
	defer client.Close()
	commands := make([]redis.Cmder, n)
	for i := range commands {
		commands[i] = cmd()
	}
	_ = send(t.Context(), client, commands)
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

// renamer is a hook that wraps each command in a command of its own with another name.
type renamer struct{}

type renamed struct{ redis.Cmder }

func (renamer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (renamer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return next(ctx, rename(cmd)) }
}

func (renamer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		own := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			own[i] = rename(cmd)
		}
		return next(ctx, own)
	}
}

func rename(cmd redis.Cmder) redis.Cmder {
	if args := cmd.Args(); args[0] == "RENAMED" {
		args[0] = "EVAL"
	}
	return renamed{cmd}
}

// TestHookRenames checks that script calls wrapped by a hook are sent only once, and that each call
// in a pipeline has its own outcome.
func TestHookRenames(t *testing.T) {
	var tries refusals
	refused := redis.NewClient(&redis.Options{Limiter: &tries})
	defer refused.Close()
	refused.AddHook(renamer{})
	_ = send(t.Context(), refused, []redis.Cmder{call()})
	_ = send(t.Context(), refused, []redis.Cmder{call(), call()})
	if tries != 2 {
		t.Errorf("a call and a pipeline were tried %d times", tries)
	}
	client := redis.NewClient(&redis.Options{Addr: redistest.Addr(t)})
	defer client.Close()
	client.AddHook(renamer{})
	var commands []*command
	var together []redis.Cmder
	for _, script := range []string{"return {7}", "return redis.error_reply('WRONGTYPE')", "return {8}"} {
		c := build(t.Context(), &connection.ScriptCall{Command: "RENAMED", Script: script, Keys: []string{redistest.Key(t)}, Units: []string{"1"}})
		commands, together = append(commands, c), append(together, c)
	}
	err := send(t.Context(), client, together)
	first, err1 := result(commands[0], err)
	_, err2 := result(commands[1], err)
	third, err3 := result(commands[2], err)
	if err := errors.Join(err1, err3); err != nil || first[0] != 7 || third[0] != 8 || !errors.As(err2, new(*connection.ReplyError)) {
		t.Errorf("%v, %v, %v, %v", first, third, err, err2)
	}
}
