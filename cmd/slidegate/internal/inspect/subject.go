package inspect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/connect"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// Server holds the flags that name a Redis server or cluster.
type Server struct {
	Redis      flags.Redis      `placeholder:"HOST:PORT" env:"SLIDEGATE_REDIS" help:"Redis: host:port, nodes of a cluster, or a URL such as rediss://user:password@host. Default: 127.0.0.1:6379."`
	RedisFiles flags.RedisFiles `embed:""`
}

// subject returns the Subject for an event of a limiter, or for all its events.
func (s *Server) subject(name, event flags.Argument, secret flags.Secret) *Subject {
	return &Subject{Server: *s, Secret: secret, Name: string(name), Event: string(event)}
}

// Subject represents an event of a rate limiter in Redis, and the flags that say where its counts
// are stored.
type Subject struct {
	Server
	AR1      bool         `name:"ar1" help:"The limiter is of package ar1."`
	Pace     bool         `help:"The limiter is of package pace."`
	Inflight bool         `help:"The limiter is of package inflight."`
	Secret   flags.Secret `name:"secret-file" placeholder:"FILE" help:"A file with the Secret of a limiter that hides events in its keys."`

	Name  string `kong:"-"` // of the limiter; set by commands from their arguments
	Event string `kong:"-"`
}

// localRedis is the address of Redis if no flag names another.
const localRedis = "127.0.0.1:6379"

// server returns flags that name the same Redis server for another command, unless the environment
// does. It replaces URLs, which can hold passwords, by a placeholder.
func (s *Subject) server() (flags []string) {
	switch to := s.Redis.String(); {
	case s.Redis.InEnv:
	case s.Redis.IsURL():
		flags = append(flags, "--redis URL")
	case to != localRedis || os.Getenv("SLIDEGATE_REDIS") != "":
		flags = append(flags, "--redis "+to)
	}
	for _, file := range s.RedisFiles.Names().Flags() {
		flags = append(flags, file[0]+" "+logs.ShellQuoted(file[1]))
	}
	return flags
}

// flags returns flags that name the same limiter for another command.
func (s *Subject) flags() []string {
	flags := append(s.server(), s.kinds()...)
	if len(s.Secret) > 0 {
		flags = append(flags, "--secret-file FILE")
	}
	return flags
}

// kinds returns the flags that name the limiter's package. Package window needs no flag.
func (s *Subject) kinds() (flags []string) {
	for _, kind := range []struct {
		flag  string
		given bool
	}{{"--ar1", s.AR1}, {"--pace", s.Pace}, {"--inflight", s.Inflight}} {
		if kind.given {
			flags = append(flags, kind.flag)
		}
	}
	return flags
}

// checkKinds returns an error if the flags name more than one package.
func (s *Subject) checkKinds() error {
	if flags := s.kinds(); len(flags) > 1 {
		return fmt.Errorf("%s and %s cannot be combined: a limiter is from one package; leave out one of them", flags[0], flags[1])
	}
	return nil
}

// limits parses comma-separated limits. For package inflight, text contains only Max, which is
// returned as a limit without a Per.
func (s *Subject) limits(text string) (flags.Limits, error) {
	if !s.Inflight {
		return flags.ParseLimits(text)
	}
	most, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not the Max of a limiter of package inflight; write a number of units, as in 5", text)
	}
	return flags.Limits{{Max: most}}, nil
}

// connect connects to the server or cluster.
func (s *Subject) connect(ctx context.Context) (rueidis.Client, error) {
	if len(s.Redis.InitAddress) == 0 {
		s.Redis.InitAddress = []string{localRedis}
	}
	if err := s.checkKinds(); err != nil {
		return nil, err
	}
	if err := s.checkName(); err != nil {
		return nil, err
	}
	if err := s.Redis.Read(s.RedisFiles.Names()); err != nil {
		return nil, err
	}
	client, err := s.Redis.Connect(ctx)
	return client, s.userError(ctx, err)
}

// checkName returns an error if a limiter cannot have this name or secret. It needs no connection.
// An empty name is accepted, because the page receives the name later.
func (s *Subject) checkName() error {
	if s.Name == "" {
		return nil
	}
	_, err := window.NewLocal(window.Config{Name: s.Name, Limits: placeholderLimits, Secret: s.Secret})
	return err
}

// userError rewords an error of a Redis call for the user.
func (s *Subject) userError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.New("interrupted")
	case ctx.Err() != nil, window.ReasonOf(err) == window.ReasonTimeout:
		return s.outage(errors.New("it did not answer in time"))
	case errors.Is(err, window.ErrOutage), errors.Is(err, window.ErrUncertain):
		return s.outage(err)
	}
	return err
}

func (s *Subject) outage(err error) error {
	return s.Redis.Failed(err, "try again when it works")
}

// placeholderLimits serve calls for which the limits do not matter. No real limiter has a window of
// one millisecond.
var placeholderLimits = flags.Limits{{Max: 1, Per: time.Millisecond}}

// fetchState reads the state of the event under the given limits, or under those of its override,
// and under all other limits that Redis stores. It calls Redis once without limits, once more with
// limits if there are any, and once for the override.
func (s *Subject) fetchState(ctx context.Context, client rueidis.Client, given flags.Limits, now func() time.Time) (*State, error) {
	st, err := s.inspect(ctx, client, placeholderLimits, now)
	if err != nil {
		return nil, s.userError(ctx, err)
	}
	override, given, unread := s.addOverride(ctx, client, given, now)
	stored := st.dropPlaceholders()
	if len(given) == 0 {
		st.At = st.attemptTime()
	} else if st, err = s.inspect(ctx, client, given, now); err != nil {
		return nil, s.userError(ctx, err)
	}
	st.decide(stored)
	st.setOverride(override, unread)
	return st, nil
}

// inspect reads the state of the event under the given limits, with one call to Redis.
func (s *Subject) inspect(ctx context.Context, client rueidis.Client, limits flags.Limits, now func() time.Time) (*State, error) {
	l, err := s.limiter(client, limits, now)
	if err != nil {
		return nil, err
	}
	return s.ask(ctx, l)
}

// ask converts the state that l reports for the event.
func (s *Subject) ask(ctx context.Context, l limiter) (*State, error) {
	switch l := l.(type) {
	case *ar1.Limiter:
		got, err := l.Inspect(ctx, s.Event)
		return s.ar1State(got), err
	case *pace.Limiter:
		got, err := l.Inspect(ctx, s.Event)
		return s.paceState(got), err
	case inflightLimiter:
		got, err := l.Inspect(ctx, s.Event)
		if !l.known {
			got.Max = 0
		}
		return s.inflightState(got), err
	}
	got, err := l.(*window.Limiter).Inspect(ctx, s.Event)
	return s.windowState(got), err
}

// forget removes the counts of the event.
func (s *Subject) forget(ctx context.Context, client rueidis.Client) error {
	l, err := s.limiter(client, placeholderLimits, nil)
	if err == nil {
		err = l.Reset(ctx, s.Event)
	}
	return s.userError(ctx, err)
}

// limiter is a limiter of any of the packages window, ar1, pace and inflight.
type limiter interface {
	Reset(ctx context.Context, event string) error
}

// inflightLimiter is a limiter of package inflight.
type inflightLimiter struct {
	*inflight.Limiter
	known bool // whether Max was given
}

func (s *Subject) limiter(client rueidis.Client, limits flags.Limits, now func() time.Time) (limiter, error) {
	if err := s.checkKinds(); err != nil {
		return nil, err
	}
	switch {
	case s.Inflight:
		cfg := inflight.Config{Name: s.Name, Max: limits[0].Max, Secret: s.Secret, Timeout: connect.Timeout, TTL: 3 * connect.Timeout}
		l, err := inflight.New(window.On(client), cfg)
		return inflightLimiter{l, limits[0].Per == 0}, err
	case s.Pace:
		return pace.New(window.On(client), pace.Config{Name: s.Name, Limits: limits, Secret: s.Secret, Now: now, Timeout: connect.Timeout})
	}
	return s.estimator().Limiter(client, window.Config{Name: s.Name, Limits: limits, Secret: s.Secret, Now: now, Timeout: connect.Timeout})
}

// estimator returns the method by which the limiter counts.
func (s *Subject) estimator() estimator.Estimator {
	if s.AR1 {
		return estimator.AR1
	}
	return estimator.Window
}
