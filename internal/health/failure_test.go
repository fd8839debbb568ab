package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/connection"
)

func errorReply(text string) error { return &connection.ReplyError{Cause: errors.New(text)} }

// afterDial returns why calls fail after a dial has failed with err.
func afterDial(err error) error {
	conn := connection.Dial(func(context.Context) (rueidis.Client, error) { return nil, err })
	<-conn.Tried()
	defer conn.Close()
	return conn.NotConnected(nil)
}

// TestReasonOf checks the reasons for causes that faulttest.Reasons cannot create, or that servers
// express in several ways.
func TestReasonOf(t *testing.T) {
	for _, test := range []struct {
		cause error
		want  string
	}{
		{errorReply("TRYAGAIN Multiple keys request during rehashing of slot"), ReasonTryAgain},
		{errorReply("MOVED 866 127.0.0.1:7001"), ReasonTryAgain},
		{errorReply("ASK 866 127.0.0.1:7001"), ReasonTryAgain},
		{errorReply("LOADING Redis is loading the dataset in memory"), ReasonLoading},
		{errorReply("NOSCRIPT No matching script. Please use EVAL."), ReasonNoScript},
		{errorReply("NOAUTH Authentication required."), ReasonNoAuth},
		{errorReply("ERR Error running script (call to f_4f0f): @user_script:21: @user_script: 21: -OOM command not allowed when used memory > 'maxmemory'."), ReasonOOM},
		{errorReply("ERR Error running script (call to f_4f0f): @user_script:21: @user_script: 21: -READONLY You can't write against a read only replica."), ReasonReadOnly},
		{errorReply("ERR Error running script (call to f_4f0f): @user_script:2: attempt to index a nil value"), ReasonLua},
		{errorReply("ERR user_script:2: attempt to index a nil value script: 4f0f, on @user_script:2."), ReasonLua},
		{errorReply("ERR value is not an integer or out of range"), ReasonOther},
		{errorReply("ERR unknown command `EVALSHA`, with args beginning with: "), ReasonLua},
		{errorReply("ERR unknown command 'script', with args beginning with: 'load'"), ReasonLua},
		{errorReply("ERR Could not find scripting engine 'lua'"), ReasonLua},
		{errorReply("ERR unknown command 'SENTINEL', with args beginning with: 'SENTINELS'"), ReasonOther},
		{fmt.Errorf("BUSY Redis is busy running a script: [HELLO]: %w", rueidis.ErrNoCache), ReasonBusy},
		{&connection.UnsentError{Cause: rueidis.ErrNoSlot, Reason: ReasonClusterDown}, ReasonClusterDown},
		{&connection.UnsentError{Cause: errors.New("a hook refuses")}, ReasonRefused},
		{&connection.UnsentError{Cause: errors.New("there is no connection yet: WRONGPASS invalid username-password pair")}, ReasonNoAuth},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, ReasonRefused},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, ReasonClosed},
		{io.EOF, ReasonClosed},
		{afterDial(io.EOF), ReasonClosed},
		{afterDial(context.DeadlineExceeded), ReasonTimeout},
		{rueidis.ErrClosing, ReasonClosed},
		{context.DeadlineExceeded, ReasonTimeout},
		{&Expired{}, ReasonTimeout},
		{&breakerOpen{&Expired{}}, ReasonTimeout},
		{context.Canceled, ReasonOther},
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

// TestRemedy checks the remedy in the text of an ErrOutage, and that the text is one line without a
// period before the remedy.
func TestRemedy(t *testing.T) {
	for _, test := range []struct {
		cause error
		want  string
	}{
		{errorReply("NOPERM User x has no permissions to access a key."), "a key; give its user ~api:* and the commands of https://github.com/slidegate/slidegate/blob/main/docs/keys.md#the-acl-user"},
		{errorReply("OOM command not allowed when used memory > 'maxmemory'."), "'maxmemory'; raise maxmemory, and leave maxmemory-policy at noeviction"},
		{fmt.Errorf("BUSY Redis is busy running a script.: [CLIENT TRACKING ON OPTIN]\n%w", rueidis.ErrNoCache), "[CLIENT TRACKING ON OPTIN]; " + rueidis.ErrNoCache.Error() + "; try again later, or decide without it"},
		{connection.ErrClosed, "the Connection is closed; close it after its last use"},
		{&breakerOpen{&connection.UnsentError{Cause: connection.ErrClosed, Reason: ReasonClosed}}, "the Connection is closed; close it after its last use"},
		{&net.OpError{Op: "dial", Err: &net.AddrError{Err: "invalid port", Addr: "99999"}}, "invalid port; choose a port from 1 to 65535"},
	} {
		f := &Failure{Name: "api", Counted: ErrOutage, Cause: test.cause}
		if text := f.Error(); !strings.HasSuffix(text, test.want) || strings.Contains(text, "\n") {
			t.Errorf("%s, not %s", text, test.want)
		}
	}
}

// TestFailureHasNoKey checks that the error that observers receive contains no key, even if a
// server repeats the key.
func TestFailureHasNoKey(t *testing.T) {
	err := FailureOf("api:{secret}:w", ErrOutage, &connection.ReplyError{Cause: errors.New("ERR unknown command 'EVALSHA', with args beginning with: '4f0f' '1' 'api:{secret}:w'")})
	if text := FailureIn(err).Error(); strings.Contains(text, "secret") || !strings.Contains(text, "unknown command 'EVALSHA'; use a server") {
		t.Error(text)
	}
	if !strings.Contains(err.Error(), "key api:{secret}:w: ") || !errors.Is(err, ErrOutage) {
		t.Error(err)
	}
}

// TestReasonsAreDocumented checks that each reason is in the table of docs/outages.md and in the
// comments of window/observe.go. Those above timeout need an operator, so all alerts for these and
// the runbook must name them.
func TestReasonsAreDocumented(t *testing.T) {
	page, comments, runbook := file(t, "docs/outages.md"), file(t, "window/observe.go"), file(t, "docs/production.md")
	reasons := []string{ReasonTimeout, ReasonRefused, ReasonClosed, ReasonOther}
	for _, r := range replyReasons {
		reasons = append(reasons, r.reason)
	}
	urgent, _, _ := strings.Cut(page, "\n| `timeout` |")
	var alert []string
	for _, reason := range reasons {
		row := regexp.MustCompile("(?m)^\\| [^|]*`" + reason + "`[^|]* \\|")
		if !row.MatchString(page) || !regexp.MustCompile(`(?i)\b(Reason)?`+reason+`\b`).MatchString(comments) {
			t.Errorf("the reason %q is not in the table of docs/outages.md, or not in window/observe.go", reason)
		}
		if row.MatchString(urgent) && !slices.Contains(alert, reason) {
			alert = append(alert, reason)
			if !row.MatchString(runbook) {
				t.Errorf("the reason %q is not in the table of docs/production.md", reason)
			}
		}
	}
	for _, list := range regexp.MustCompile(`error_type=~"([^"]*)"`).FindAllStringSubmatch(file(t, "docs/monitoring/alerts.yml"), -1) {
		if diff := cmp.Diff(slices.Sorted(slices.Values(alert)), slices.Sorted(slices.Values(strings.Split(list[1], "|")))); diff != "" {
			t.Errorf("an alert names other reasons: %s", diff)
		}
	}
}

// file returns the content of a file of the repository.
func file(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
