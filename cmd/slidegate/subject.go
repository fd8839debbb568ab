package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// subject is an event of a limiter in Redis, by the flags that name it.
type subject struct {
	Redis  addresses `placeholder:"HOST:PORT" env:"SLIDEGATE_REDIS" help:"The Redis, or nodes of the cluster (host:port,host:port), or a URL such as rediss://user:password@host:6379. Without it: 127.0.0.1:6379."`
	AR1    bool      `name:"ar1" help:"The limiter is one of ar1: it counts by levels, not by windows."`
	Secret secret    `name:"secret-file" placeholder:"FILE" help:"The Secret of a limiter that hides events in its keys: what the file holds, but for a newline at its end."`

	Name  raw `kong:"-"`
	Event raw `kong:"-"`
}

// raw is a text as it is, whatever bytes it has.
type raw string

// Decode reads the text.
func (r *raw) Decode(c *kong.DecodeContext) error {
	text, _ := c.Scan.Pop().Value.(string)
	if text == "" {
		return errors.New("it is empty; write the one that the service uses")
	}
	*r = raw(text)
	return nil
}

// secret is what a file holds.
type secret []byte

// Decode reads the file.
func (s *secret) Decode(c *kong.DecodeContext) error {
	if len(*s) > 0 {
		return errTwice
	}
	var file given
	if err := file.Decode(c); err != nil {
		return err
	}
	text, err := readSecret(string(file))
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return fmt.Errorf("cannot read %q (%w); name the file that holds the secret", file, path.Err)
	}
	*s = bytes.TrimSuffix(text, []byte("\n"))
	switch {
	case err != nil:
		return err
	case len(text) > maxSecret:
		return fmt.Errorf("%q holds more than %d bytes; name the file that holds the secret", file, maxSecret)
	case len(*s) == 0:
		return fmt.Errorf("%q is empty; name the file that holds the secret", file)
	}
	return nil
}

// maxSecret is the most bytes that a file with a secret may hold.
const maxSecret = 64 << 10

// readSecret reads the file, and stops after one byte too many, since some files never end.
func readSecret(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, maxSecret+1))
}

// connect finds the server or the cluster.
func (s *subject) connect(ctx context.Context) (rueidis.Client, error) {
	if len(s.Redis.InitAddress) == 0 {
		s.Redis.InitAddress = []string{"127.0.0.1:6379"}
	}
	if err := s.checkName(); err != nil {
		return nil, err
	}
	client, err := s.Redis.connect(ctx)
	return client, s.failed(ctx, err)
}

// checkName refuses a name or a secret that no limiter can have, before Redis is asked. The page has a name only later.
func (s *subject) checkName() error {
	if s.Name == "" {
		return nil
	}
	_, err := window.NewLocal(window.Config{Name: string(s.Name), Limits: anyLimits, Secret: s.Secret})
	return err
}

// failed says what an error means to somebody who looks.
func (s *subject) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.New("interrupted")
	case ctx.Err() != nil:
		return s.outage(errors.New("it gave no answer in time"))
	case errors.Is(err, window.ErrOutage), errors.Is(err, window.ErrUncertain):
		return s.outage(err)
	}
	return err
}

func (s *subject) outage(err error) error {
	why := cause(err)
	return fmt.Errorf("--redis %v failed (%s); %s", s.Redis, why, next(why, "try again when it works"))
}

// anyLimits are for calls in which limits do not matter. No service counts over a millisecond.
var anyLimits = limits{{Max: 1, Per: time.Millisecond}}

// look asks Redis for the state of the event under the limits given, and under what else is stored.
func (s *subject) look(ctx context.Context, client rueidis.Client, given limits, now func() time.Time) (*state, error) {
	st, err := s.inspect(ctx, client, anyLimits, now)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	stored := st.Limits[len(anyLimits):]
	st.Limits = stored
	if len(given) == 0 {
		st.At = st.date()
	} else if st, err = s.inspect(ctx, client, given, now); err != nil {
		return nil, s.failed(ctx, err)
	}
	st.judge(stored)
	return st, nil
}

// inspect asks the library for the state under these limits.
func (s *subject) inspect(ctx context.Context, client rueidis.Client, limits limits, now func() time.Time) (*state, error) {
	l, err := s.limiter(client, limits, now)
	if err != nil {
		return nil, err
	}
	return s.ask(ctx, l)
}

// ask asks a limiter for the state of the event.
func (s *subject) ask(ctx context.Context, l limiter) (*state, error) {
	if l, ok := l.(*ar1.Limiter); ok {
		got, err := l.Inspect(ctx, string(s.Event))
		return s.levels(got), err
	}
	got, err := l.(*window.Limiter).Inspect(ctx, string(s.Event))
	return s.windows(got), err
}

// forget removes the event.
func (s *subject) forget(ctx context.Context, client rueidis.Client) error {
	l, err := s.limiter(client, anyLimits, nil)
	if err == nil {
		err = l.Reset(ctx, string(s.Event))
	}
	return s.failed(ctx, err)
}

func (s *subject) limiter(client rueidis.Client, limits limits, now func() time.Time) (limiter, error) {
	if s.AR1 {
		return ar1.New(client, ar1.Config{Name: string(s.Name), Limits: limits, Secret: s.Secret, Now: now, Timeout: patience})
	}
	return window.New(client, window.Config{Name: string(s.Name), Limits: limits, Secret: s.Secret, Now: now, Timeout: patience})
}
