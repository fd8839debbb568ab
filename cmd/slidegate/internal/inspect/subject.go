package inspect

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

// Subject is an event of a limiter in Redis.
type Subject struct {
	Redis  connect.Addresses // none: 127.0.0.1:6379
	AR1    bool              // the limiter is one of ar1
	Secret []byte            // of a limiter that hides events in its keys
	Name   string            // of the limiter
	Event  string
}

// localRedis is where Redis is if no flag says so.
const localRedis = "127.0.0.1:6379"

// flags returns the flags of a command on the same limiter, without what is secret.
func (s *Subject) flags() (flags []string) {
	switch to := s.Redis.String(); {
	case s.Redis.Username+s.Redis.Password != "" || s.Redis.TLSConfig != nil || s.Redis.SelectDB != 0:
		flags = append(flags, "--redis URL")
	case to != localRedis:
		flags = append(flags, "--redis "+to)
	}
	if s.AR1 {
		flags = append(flags, "--ar1")
	}
	if len(s.Secret) > 0 {
		flags = append(flags, "--secret-file FILE")
	}
	return flags
}

// connect finds the server or the cluster.
func (s *Subject) connect(ctx context.Context) (rueidis.Client, error) {
	if len(s.Redis.InitAddress) == 0 {
		s.Redis.InitAddress = []string{localRedis}
	}
	if err := s.checkName(); err != nil {
		return nil, err
	}
	client, err := s.Redis.Connect(ctx)
	return client, s.failed(ctx, err)
}

// checkName refuses a name or a secret that no limiter can have, before Redis is asked. The page has a name only later.
func (s *Subject) checkName() error {
	if s.Name == "" {
		return nil
	}
	_, err := window.NewLocal(window.Config{Name: s.Name, Limits: anyLimits, Secret: s.Secret})
	return err
}

// failed says what an error means to somebody who looks.
func (s *Subject) failed(ctx context.Context, err error) error {
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

func (s *Subject) outage(err error) error {
	return s.Redis.Failed(err, "try again when it works")
}

// anyLimits are for calls in which limits do not matter. No service counts over a millisecond.
var anyLimits = flags.Limits{{Max: 1, Per: time.Millisecond}}

// look asks Redis for the state of the event under the limits given, and under what else is stored.
func (s *Subject) look(ctx context.Context, client rueidis.Client, given flags.Limits, now func() time.Time) (*State, error) {
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
func (s *Subject) inspect(ctx context.Context, client rueidis.Client, limits flags.Limits, now func() time.Time) (*State, error) {
	l, err := s.limiter(client, limits, now)
	if err != nil {
		return nil, err
	}
	return s.ask(ctx, l)
}

// ask asks a limiter for the state of the event.
func (s *Subject) ask(ctx context.Context, l estimator.Limiter) (*State, error) {
	if l, ok := l.(*ar1.Limiter); ok {
		got, err := l.Inspect(ctx, s.Event)
		return s.levels(got), err
	}
	got, err := l.(*window.Limiter).Inspect(ctx, s.Event)
	return s.windows(got), err
}

// forget removes the event.
func (s *Subject) forget(ctx context.Context, client rueidis.Client) error {
	l, err := s.limiter(client, anyLimits, nil)
	if err == nil {
		err = l.Reset(ctx, s.Event)
	}
	return s.failed(ctx, err)
}

func (s *Subject) limiter(client rueidis.Client, limits flags.Limits, now func() time.Time) (estimator.Limiter, error) {
	return s.estimator().Limiter(client, window.Config{Name: s.Name, Limits: limits, Secret: s.Secret, Now: now, Timeout: connect.Timeout})
}

// estimator says how the limiter counts.
func (s *Subject) estimator() estimator.Estimator {
	if s.AR1 {
		return estimator.AR1
	}
	return estimator.Window
}
