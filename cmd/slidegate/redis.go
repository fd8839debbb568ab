package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/window"
)

// patience is how long Redis may take over one call.
const patience = 5 * time.Second

// addresses are how to reach a Redis, or nodes of one cluster.
type addresses struct{ rueidis.ClientOption }

// Decode adds the addresses of one flag.
func (as *addresses) Decode(c *kong.DecodeContext) error {
	return eachValue(c, "127.0.0.1:6379", as.add)
}

func (as *addresses) add(s string) error {
	if strings.Contains(s, "://") {
		return as.addURL(s)
	}
	as.InitAddress = append(as.InitAddress, s)
	if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
		return fmt.Errorf("%q is no address of a Redis; write host:port, as in 127.0.0.1:6379", s)
	}
	return nil
}

// addURL takes everything from a URL. Its text is not repeated in an error, since it may hold a password.
func (as *addresses) addURL(s string) error {
	o, err := rueidis.ParseURL(s)
	if err != nil || len(as.InitAddress) > 0 {
		return errors.New("its URL cannot be read; write one alone, as in rediss://user:password@host:6379")
	}
	as.ClientOption = o
	return nil
}

// String names the servers, without a password.
func (as addresses) String() string { return strings.Join(as.InitAddress, ",") }

// connect finds out by itself whether the addresses are of one server or of a cluster.
func (as addresses) connect() (rueidis.Client, error) {
	o := as.ClientOption
	o.Dialer = net.Dialer{Timeout: patience}
	o.ConnWriteTimeout = patience
	o.AlwaysPipelining = true // else a call that times out would close the connection
	o.PipelineMultiplex = -1  // one connection: over several, such a call could run after the removal of what it wrote
	o.DisableCache = true
	client, err := rueidis.NewClient(o)
	if err == nil {
		return client, nil
	}
	remedy := "write a password or TLS as a URL, rediss://user:password@host:6379"
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		remedy = "correct it"
	}
	cause, _, _ := strings.Cut(err.Error(), ", ") // NOAUTH goes on for long
	return nil, fmt.Errorf("--redis %v does not answer as a Redis or one cluster (%s); %s, or leave out --redis to decide in memory", as, cause, remedy)
}

// failed says what an error of Redis means to a replay. What the library says about the count is for those who go on.
func (r *replay) failed(err error) error {
	cause := err.Error()
	for _, e := range []error{window.ErrOutage, window.ErrUncertain} {
		if _, after, found := strings.Cut(cause, e.Error()+": "); found {
			cause = after
		}
	}
	return fmt.Errorf("--redis %v failed (%s); replay again when it works, or leave out --redis to decide in memory", r.redis, cause)
}

// forget removes an event from Redis. In memory, limiters forget by themselves.
func (w *worker) forget(ctx context.Context, event string) error {
	if w.r.client == nil {
		return nil
	}
	for _, l := range w.limiters {
		ctx, cancel := context.WithTimeout(ctx, patience)
		err := l.Reset(ctx, event)
		cancel()
		if err != nil {
			return w.r.failed(err)
		}
	}
	return nil
}

// forgetAll removes all events from Redis.
func (w *worker) forgetAll(ctx context.Context) error {
	for event := range w.events {
		if err := w.forget(ctx, event); err != nil {
			return err
		}
	}
	return nil
}
