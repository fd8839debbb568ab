package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/rueidis"
)

// TestReasonOf checks the reasons of causes that Reasons of faulttest cannot make, or that servers
// write in several ways.
func TestReasonOf(t *testing.T) {
	reply := func(text string) error { return &ReplyError{errors.New(text)} }
	for _, test := range []struct {
		cause error
		want  string
	}{
		{reply("TRYAGAIN Multiple keys request during rehashing of slot"), ReasonTryAgain},
		{reply("MOVED 866 127.0.0.1:7001"), ReasonTryAgain},
		{reply("ASK 866 127.0.0.1:7001"), ReasonTryAgain},
		{reply("LOADING Redis is loading the dataset in memory"), ReasonLoading},
		{reply("NOSCRIPT No matching script. Please use EVAL."), ReasonNoScript},
		{reply("NOAUTH Authentication required."), ReasonNoAuth},
		{reply("ERR Error running script (call to f_4f0f): @user_script:21: @user_script: 21: -OOM command not allowed when used memory > 'maxmemory'."), ReasonOOM},
		{reply("ERR Error running script (call to f_4f0f): @user_script:21: @user_script: 21: -READONLY You can't write against a read only replica."), ReasonReadOnly},
		{reply("ERR Error running script (call to f_4f0f): @user_script:2: attempt to index a nil value"), ReasonLua},
		{reply("ERR user_script:2: attempt to index a nil value script: 4f0f, on @user_script:2."), ReasonLua},
		{reply("ERR value is not an integer or out of range"), ReasonOther},
		{fmt.Errorf("BUSY Redis is busy running a script: [HELLO]: %w", rueidis.ErrNoCache), ReasonBusy},
		{&UnsentError{Cause: rueidis.ErrNoSlot, Reason: ReasonClusterDown}, ReasonClusterDown},
		{&UnsentError{Cause: errors.New("a hook refuses")}, ReasonRefused},
		{&UnsentError{Cause: errors.New("there is no connection yet: WRONGPASS invalid username-password pair")}, ReasonNoAuth},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, ReasonRefused},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, ReasonClosed},
		{io.EOF, ReasonClosed},
		{rueidis.ErrClosing, ReasonClosed},
		{context.DeadlineExceeded, ReasonTimeout},
		{&expired{}, ReasonTimeout},
		{&breakerOpen{&expired{}}, ReasonTimeout},
		{errTooMany.Cause, ReasonTimeout},
		{errors.New("what?"), ReasonOther},
	} {
		f := &Failure{Counted: ErrOutage, Cause: test.cause}
		if got := FailureIn(fmt.Errorf("wrapped: %w", f)).Reason(); got != test.want {
			t.Errorf("%v: %q, not %q", test.cause, got, test.want)
		}
	}
	if f := FailureIn(errors.New("another")); f.Reason() != "" || f.Err() != nil {
		t.Errorf("no Failure: %v", f)
	}
}

// TestFailureHasNoKey checks that what observers get has no key, even if a server repeats it.
func TestFailureHasNoKey(t *testing.T) {
	err := failureOf("api:{secret}:w", ErrOutage, &ReplyError{errors.New("ERR unknown command 'EVALSHA', with args beginning with: '4f0f' '1' 'api:{secret}:w'")})
	if text := FailureIn(err).Error(); strings.Contains(text, "secret") || !strings.Contains(text, "unknown command 'EVALSHA'; use a server") {
		t.Error(text)
	}
	if !strings.Contains(err.Error(), "key api:{secret}:w: ") || !errors.Is(err, ErrOutage) {
		t.Error(err)
	}
}
