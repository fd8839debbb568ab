package engine

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

var (
	// ErrOutage says that Redis could not answer, and that nothing was counted.
	ErrOutage = errors.New("nothing was counted, since Redis cannot answer; try again later, or decide without it")
	// ErrUncertain says that no reply came.
	ErrUncertain = errors.New("no reply from Redis, so this may or may not have been counted; do not simply repeat it")

	errExpired   = errors.New("nothing came")
	errNotLoaded = errors.New("the server did not load the script")
)

// rounded returns a duration as errors tell it: in whole milliseconds, if it is at least one.
func rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d
	}
	return d.Round(time.Millisecond)
}

// isOutage reports whether an error means that Redis could not answer, or not in time.
func isOutage(err error) bool { return errors.Is(err, ErrOutage) || errors.Is(err, ErrUncertain) }

// notSent returns the error of a caller whose context ended before anything was sent.
func notSent(cause error) error { return fmt.Errorf("nothing was sent: %w", cause) }

// notRun reports whether err proves that the script did not run, though it may run if it is sent again.
func notRun(err error) bool {
	if reply, ok := rueidis.IsRedisErr(err); ok {
		return reply.IsTryAgain() || reply.IsNoScript() || reply.IsClusterDown() || reply.IsLoading() ||
			strings.HasPrefix(reply.Error(), "MASTERDOWN")
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, rueidis.ErrNoSlot) || errors.Is(err, errNotLoaded)
}

// isNoScript reports whether the server does not know the script.
func isNoScript(err error) bool {
	reply, isReply := rueidis.IsRedisErr(err)
	return isReply && reply.IsNoScript()
}

// explain adds to the error of a request that was sent what it means for the count. The scripts write last and once, so an
// error reply means that nothing was counted.
func explain(err error, key, verb string) error {
	reply, isReply := rueidis.IsRedisErr(err)
	reads := verb == string(Peek) || verb == verbInspect
	switch {
	case isReply && fromScript(reply.Error()):
		return err
	case isReply || reads || notRun(err):
		return fmt.Errorf("key %s: %w: %w", key, ErrOutage, err)
	}
	return fmt.Errorf("key %s: %w: %w", key, ErrUncertain, err)
}

// fromScript reports whether the script itself refused. Such a reply names the key and the remedy.
func fromScript(reply string) bool {
	return strings.HasPrefix(reply, "WRONGTYPE") || strings.HasPrefix(reply, "SLIDEGATE")
}
