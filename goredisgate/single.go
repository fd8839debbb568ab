package goredisgate

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/internal/engine"
)

// errRepeats is why a client is refused. It protects from versions of go-redis that are not known yet.
var errRepeats = errors.New("slidegate: this version of go-redis cannot be kept from sending requests twice; use an older one, and report it")

// unrepeating returns a client of the same server that shares the pool and the hooks, and sends
// nothing twice. By default go-redis repeats a pipeline up to three times if the connection breaks,
// or if the first reply is an error such as LOADING. It decides so by the options, of which
// WithTimeout makes a copy.
func unrepeating(client *redis.Client) (*redis.Client, error) {
	own := client.Options()
	once := client.WithTimeout(own.ReadTimeout)
	options := once.Options()
	if options == own {
		return nil, errRepeats
	}
	options.MaxRetries, options.WriteTimeout = 0, own.WriteTimeout
	if once.Options().MaxRetries != 0 {
		return nil, errRepeats
	}
	return once, nil
}

// loader loads scripts. To load one twice does no harm.
type loader struct{ client redis.UniversalClient }

// Load loads a script into all servers, and returns its hash.
func (l loader) Load(ctx context.Context, source string) (string, error) {
	hash, err := l.client.ScriptLoad(ctx, source).Result()
	return hash, translate(err)
}

// single is the engine's Client of one server, or of the master that Sentinel names.
type single struct {
	loader
	node   *redis.Client
	prober prober
}

// Cluster reports false.
func (*single) Cluster() bool { return false }

// Close does nothing: the client belongs to the caller of Connect.
func (*single) Close() {}

// Send sends script calls as one pipeline, and answers each of them.
func (s *single) Send(ctx context.Context, name, script string, calls []*engine.ScriptCall) {
	if err := ctx.Err(); err != nil {
		answerAll(calls, &engine.UnsentError{Cause: err})
		return
	}
	commands := make([]*command, len(calls))
	pipeline := make([]redis.Cmder, len(calls))
	for i, c := range calls {
		commands[i] = build(ctx, name, script, c)
		pipeline[i] = commands[i].IntSliceCmd
	}
	failure := send(ctx, s.node, pipeline)
	for i, c := range calls {
		reply, err := result(commands[i], failure)
		if i == 0 && isBroken(err) {
			s.prober.probe(s.node)
		}
		c.Answer(reply, err)
	}
}

// isBroken reports whether err shows that a connection broke.
func isBroken(err error) bool {
	var timeout net.Error
	return err != nil && !errors.As(err, new(*engine.ReplyError)) && !errors.As(err, new(*engine.UnsentError)) &&
		(!errors.As(err, &timeout) || !timeout.Timeout())
}

// A prober makes go-redis notice which connections of a node broke together with another one. Otherwise
// each could cost a request, because go-redis checks none that uses TLS before it sends on it. The
// requests that fail until then count as one failure: all of them began before the first has ended.
type prober struct {
	mu   sync.Mutex
	done chan struct{} // closed when the probe that runs is over; nil if none runs
}

const (
	maxProbe = 100 * time.Millisecond // how long a probe waits for the replies of a node that may hang
	recess   = 5 * time.Millisecond   // in which connections that were in use return to the pool
)

// probe waits for the probe that runs, or for a new one.
func (p *prober) probe(client *redis.Client) {
	p.mu.Lock()
	if p.done == nil {
		p.done = make(chan struct{})
		go p.run(client)
	}
	done := p.done
	p.mu.Unlock()
	<-done
}

func (p *prober) run(client *redis.Client) {
	pingIdle(client)
	<-time.After(recess)
	pingIdle(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.done)
	p.done = nil
}

// pingIdle sends a PING on each idle connection.
func pingIdle(client *redis.Client) {
	idle := int(client.PoolStats().IdleConns)
	probed := make(chan struct{}, idle)
	for range idle {
		go func() {
			client.Ping(context.Background())
			probed <- struct{}{}
		}()
	}
	late := time.After(maxProbe)
	for range idle {
		select {
		case <-probed:
		case <-late:
			return
		}
	}
}

func answerAll(calls []*engine.ScriptCall, err error) {
	for _, c := range calls {
		c.Answer(nil, err)
	}
}

// A command is a script call that knows whether go-redis has begun to write it.
type command struct {
	*redis.IntSliceCmd
	verb *verb
}

// A verb is an argument of a command. go-redis asks for its bytes when it writes the command to a
// connection. Until then it can fail in many ways, and nothing was sent: no connection is free,
// OnConnect or a Dialer returns an error, a hook or the Limiter option refuses.
type verb struct {
	text    string
	written bool
}

// MarshalBinary returns the bytes to send.
func (v *verb) MarshalBinary() ([]byte, error) {
	v.written = true
	return []byte(v.text), nil
}

// String returns the text, for hooks that log commands.
func (v *verb) String() string { return v.text }

// build returns a script call as a command.
func build(ctx context.Context, name, script string, c *engine.ScriptCall) *command {
	v := &verb{text: c.Verb}
	args := make([]any, 0, 7+len(c.Rest))
	args = append(args, name, script, 1, c.Key, v, c.Time, c.Units)
	for _, arg := range c.Rest {
		args = append(args, arg)
	}
	return &command{redis.NewIntSliceCmd(ctx, args...), v}
}

// send sends commands to a node at once. The error is why some of them may have no reply.
func send(ctx context.Context, node *redis.Client, commands []redis.Cmder) error {
	if len(commands) == 1 {
		return node.Process(ctx, commands[0])
	}
	pipeline := node.Pipeline()
	for _, c := range commands {
		_ = pipeline.Process(ctx, c) // it only queues
	}
	_, err := pipeline.Exec(ctx)
	return err
}

// result returns the reply to a command. Where go-redis got no connection, the commands of a pipeline
// have neither a reply nor an error, and the reason is the error of the pipeline.
func result(c *command, pipeline error) ([]int64, error) {
	reply, err := c.Result()
	if reply == nil && err == nil {
		err = pipeline
	}
	if err != nil && !c.verb.written && !isCut(err) {
		return nil, unsent(err)
	}
	return reply, translate(err)
}

// isCut reports whether an open connection failed. The circuit breaker counts each unsent call, but a
// connection that breaks only once. So such a call is not known to be unsent.
func isCut(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op != "dial" || errors.Is(err, io.EOF)
}

// unsent returns an error from before a command was sent in the terms of the engine.
func unsent(err error) error {
	if err = translate(err); errors.As(err, new(*engine.ReplyError)) {
		return err
	}
	return &engine.UnsentError{Cause: err}
}

// translate returns an error of go-redis in the terms of the engine. A hook may have wrapped what the
// server replied. Its first word must stay the first.
func translate(err error) error {
	var reply redis.Error
	if errors.Is(err, redis.Nil) || !errors.As(err, &reply) {
		return err
	}
	return &engine.ReplyError{Cause: reply}
}
