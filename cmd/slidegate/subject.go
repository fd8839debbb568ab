package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/window"
)

// subject is an event of a limiter in Redis, by the flags that name it.
type subject struct {
	Redis  flags.Redis  `placeholder:"HOST:PORT" env:"SLIDEGATE_REDIS" help:"The Redis, or nodes of the cluster (host:port,host:port), or a URL such as rediss://user:password@host:6379. Without it: 127.0.0.1:6379."`
	AR1    bool         `name:"ar1" help:"The limiter is one of ar1: it counts by levels, not by windows."`
	Secret flags.Secret `name:"secret-file" placeholder:"FILE" help:"The Secret of a limiter that hides events in its keys: what the file holds, but for a newline at its end."`

	Name  flags.Argument `kong:"-"`
	Event flags.Argument `kong:"-"`
}

// connect finds the server or the cluster.
func (s *subject) connect(ctx context.Context) (rueidis.Client, error) {
	if len(s.Redis.InitAddress) == 0 {
		s.Redis.InitAddress = []string{"127.0.0.1:6379"}
	}
	if err := s.checkName(); err != nil {
		return nil, err
	}
	client, err := s.Redis.Connect(ctx)
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
	return s.Redis.Failed(err, "try again when it works")
}

// anyLimits are for calls in which limits do not matter. No service counts over a millisecond.
var anyLimits = flags.Limits{{Max: 1, Per: time.Millisecond}}

// look asks Redis for the state of the event under the limits given, and under what else is stored.
func (s *subject) look(ctx context.Context, client rueidis.Client, given flags.Limits, now func() time.Time) (*state, error) {
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
func (s *subject) inspect(ctx context.Context, client rueidis.Client, limits flags.Limits, now func() time.Time) (*state, error) {
	l, err := s.limiter(client, limits, now)
	if err != nil {
		return nil, err
	}
	return s.ask(ctx, l)
}

// ask asks a limiter for the state of the event.
func (s *subject) ask(ctx context.Context, l estimator.Limiter) (*state, error) {
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

func (s *subject) limiter(client rueidis.Client, limits flags.Limits, now func() time.Time) (estimator.Limiter, error) {
	return s.estimator().Limiter(client, window.Config{Name: string(s.Name), Limits: limits, Secret: s.Secret, Now: now, Timeout: connect.Timeout})
}

// estimator says how the limiter counts.
func (s *subject) estimator() estimator.Estimator {
	if s.AR1 {
		return estimator.AR1
	}
	return estimator.Window
}
