package goredisgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/connection"
)

// single is the connection.Client for one server, or for the master that Sentinel names.
type single struct{ node }

// Close does nothing: the client belongs to the caller of On.
func (*single) Close() {}

// Send sends script calls as one pipeline, and sets the outcome of each.
func (s *single) Send(ctx context.Context, calls []*connection.ScriptCall) {
	if err := ctx.Err(); err != nil {
		answerAll(calls, &connection.UnsentError{Cause: err})
		return
	}
	if err := s.send(ctx, calls, false); isBroken(err) {
		s.prober.probe(s.client)
	}
}

func answerAll(calls []*connection.ScriptCall, err error) {
	for _, c := range calls {
		c.Answer(nil, err)
	}
}

// command is a script call that records whether go-redis has started to write it, or a PING.
// go-redis sends a command only once, and also a pipeline that contains a command. By default,
// go-redis repeats other commands up to three times if the connection breaks, or if the reply is an
// error such as LOADING.
type command struct {
	redis.Cmder // of a script call: an IntSliceCmd, or a SliceCmd if the reply can contain strings
	verb        *verb
	call        *connection.ScriptCall
}

// NoRetry returns true, so that go-redis never repeats the command.
func (*command) NoRetry() bool { return true }

// verb is an argument of a command. go-redis requests its bytes when it writes the command to a
// connection. Before that, nothing has been sent. The command can fail earlier for many reasons: no
// connection is free, OnConnect or a Dialer returns an error, or a hook or the Limiter option
// refuses the command.
type verb struct {
	text    string
	written bool
}

// MarshalBinary returns the bytes to send, and records that the command is being written.
func (v *verb) MarshalBinary() ([]byte, error) {
	v.written = true
	return []byte(v.text), nil
}

// String returns the text of the argument, for hooks that log commands.
func (v *verb) String() string { return v.text }

// build returns the command for the script call c.
func build(ctx context.Context, c *connection.ScriptCall) *command {
	v := &verb{text: c.Verb}
	args := make([]any, 0, 5+2*len(c.Keys)+len(c.Rest))
	args = append(args, c.Command, c.Script, len(c.Keys))
	args = appendAll(args, c.Keys)
	args = append(args, v, c.Time)
	args = appendAll(args, c.Units)
	args = appendAll(args, c.Rest)
	if !c.InText {
		return &command{redis.NewIntSliceCmd(ctx, args...), v, c}
	}
	return &command{redis.NewSliceCmd(ctx, args...), v, c}
}

func appendAll(args []any, texts []string) []any {
	for _, text := range texts {
		args = append(args, text)
	}
	return args
}

// send sends commands to node as one pipeline. Its error states why some of the commands may have
// no reply.
func send(ctx context.Context, node *redis.Client, commands []redis.Cmder) error {
	if len(commands) == 1 {
		return node.Process(ctx, commands[0])
	}
	pipe := node.Pipeline()
	for _, c := range commands {
		_ = pipe.Process(ctx, c) // only queues the command
	}
	_, err := pipe.Exec(ctx)
	return err
}

// result returns the reply to c. If go-redis got no connection, a pipeline's commands have neither
// a reply nor an error. In this case result returns failure, the pipeline's error.
func result(c *command, failure error) ([]int64, error) {
	reply, err := c.integers()
	if reply == nil && err == nil {
		err = failure
	}
	if err != nil && !c.verb.written && !isCut(err) {
		return nil, unsent(err)
	}
	return reply, translate(err)
}

// integers returns the integers in the reply, and passes the strings in the reply to the script
// call. An IntSliceCmd would stop reading at a string, and the next command would mistake the rest
// of the reply for its own.
func (c *command) integers() ([]int64, error) {
	several, ok := c.Cmder.(*redis.SliceCmd)
	if !ok {
		return c.Cmder.(*redis.IntSliceCmd).Result()
	}
	values, err := several.Result()
	if values == nil || err != nil {
		return nil, err
	}
	reply := make([]int64, len(values))
	for i, value := range values {
		switch value := value.(type) {
		case int64:
			reply[i] = value
		case string:
			c.call.Text(i, value)
		default:
			return nil, fmt.Errorf("a reply of %v instead of an integer", value)
		}
	}
	return reply, nil
}

// isCut reports whether err means that an established connection broke. A call with such an error
// is not reported as unsent, because the circuit breaker counts every unsent call as a failure, but
// a broken connection only once.
func isCut(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op != "dial" || errors.Is(err, io.EOF)
}

// unsent converts an error that occurred before the command was sent to an error of package
// pipeline.
func unsent(err error) error {
	if err = translate(err); errors.As(err, new(*connection.ReplyError)) {
		return err
	}
	reason := ""
	switch {
	case errors.Is(err, redis.ErrClosed):
		reason = connection.ReasonClosed
	case errors.Is(err, redis.ErrPoolTimeout):
		reason = connection.ReasonTimeout
	}
	return &connection.UnsentError{Cause: err, Reason: reason}
}

// translate converts a go-redis error to an error of package connection. It unwraps an error reply
// that a hook has wrapped, because package health examines the first word of the reply.
func translate(err error) error {
	var reply redis.Error
	if errors.Is(err, redis.Nil) || !errors.As(err, &reply) {
		return err
	}
	return &connection.ReplyError{Cause: reply}
}
