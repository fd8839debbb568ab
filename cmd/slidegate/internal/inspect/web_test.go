package inspect

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/page"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestStartQuery checks that the URL that Run prints asks for the event that the command line
// names.
func TestStartQuery(t *testing.T) {
	six := "::1"
	for want, c := range map[string]Command{
		"":                               {},
		"?event=alice&name=login":        {Subject: Subject{Name: "login", Event: "alice"}},
		"?ar1=1&limit=5%2F1h&name=login": {Subject: Subject{Name: "login", AR1: true}, Limits: flags.Texts{"5/1h"}},
		"?name=api&pace=1":               {Subject: Subject{Name: "api", Pace: true}},
		"?inflight=1&limit=5&name=api":   {Subject: Subject{Name: "api", Inflight: true}, Limits: flags.Texts{"5"}},
		"?limit=5%2F1h%2C9%2F1d":         {Limits: flags.Texts{"5/1h", "9/1d"}},
		"?event=alice&ip=%3A%3A1&login=1&name=login": {Subject: Subject{Name: "login", Event: "alice"}, Login: true, IP: &six},
		"?login=1": {Login: true},
	} {
		if got := c.startQuery(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func limits(t *testing.T, text string) flags.Limits {
	t.Helper()
	ls, err := flags.ParseLimits(text)
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

// TestWebForgets checks that a reset with an invalid IP address forgets nothing.
func TestWebForgets(t *testing.T) {
	server := redistest.Start(t)
	client, secret := server.Client(t), []byte("sixteen bytes, or more")
	guard, err := login.New(window.On(client), login.Config{Name: "login", Secret: secret, Timeout: time.Minute})
	if err == nil {
		_, err = guard.Begin(t.Context(), "alice", netip.MustParseAddr("192.0.2.31"))
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &web{Subject: Subject{Secret: secret}, client: client}
	q := page.Query{Name: "login", Event: "alice", Login: true, Address: "192.0.2"}
	before := size(t, server)
	if err := w.forget(t.Context(), q); err == nil || size(t, server) != before {
		t.Errorf("%v; %d keys, not %d", err, size(t, server), before)
	}
	q.Address = "::ffff:192.0.2.31"
	if err := w.forget(t.Context(), q); err != nil || size(t, server) != 1 { // the address budget keeps its key
		t.Errorf("%v; %d keys", err, size(t, server))
	}
}

// TestWebForgetsChallenged checks that a reset also forgets failures of challenged attempts, and
// that the page says whether a challenge would help.
func TestWebForgetsChallenged(t *testing.T) {
	server := redistest.Start(t)
	client, secret := server.Client(t), []byte("sixteen bytes, or more")
	w := &web{Subject: Subject{Name: "login", Secret: secret}, client: client, guarded: Guard{Challenged: true}}
	g, err := w.guard(client, w.guarded, nil)
	for n := 0; n < 5 && err == nil; n++ {
		_, err = g.BeginChallenged(t.Context(), "alice", netip.MustParseAddr("192.0.2.31"))
	}
	if err != nil {
		t.Fatal(err)
	}
	q := page.Query{Name: "login", Event: "alice", Login: true, Address: "192.0.2.31"}
	fetch, err := w.open(q)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A challenge would not let the user in: denied by challenged-pair and challenged-account for ", "A challenge would let the user in now."} {
		got, err := fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if a := got.(webAccount); !a.Allowed || !strings.HasPrefix(a.ChallengeText, want) {
			t.Errorf("%+v, not %q", a, want)
		}
		if err := w.forget(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}

// size returns the number of records on a server.
func size(t *testing.T, server *redistest.Server) int64 {
	t.Helper()
	keys, err := server.Do(t.Context(), "KEYS", "*:w").AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(keys))
}

// scriptCalls matches the number of script calls in a server's statistics, for every command that
// calls scripts.
var scriptCalls = regexp.MustCompile(`cmdstat_eval[a-z_]*:calls=[0-9]+`)

// TestWebPolls checks that each poll of the page costs a single call to Redis, except the first,
// which also reads the override. It checks that the page reports the same as slidegate inspect.
func TestWebPolls(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	l, err := window.New(window.On(client), window.Config{Name: "login", Limits: limits(t, "2/1h,9/1d"), Timeout: time.Minute})
	if err == nil {
		_, err = l.AllowN(t.Context(), "alice", 2)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &web{client: client}
	for text, want := range map[string]string{"2/1h": "denied", "3/1h": "allowed", "": "unknown"} {
		fetch, err := w.open(page.Query{Name: "login", Event: "alice", Limits: text})
		if err == nil {
			_, err = fetch(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Do(t.Context(), "CONFIG", "RESETSTAT").Error(); err != nil {
			t.Fatal(err)
		}
		got, err := fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stats, err := server.Do(t.Context(), "INFO", "commandstats").ToString()
		if calls := scriptCalls.FindAllString(stats, -1); err != nil || len(calls) != 1 || !strings.HasSuffix(calls[0], "=1") {
			t.Errorf("%q: %q, %v", text, calls, err)
		}
		st := got.(webState)
		switch d := st.Decision; {
		case d == nil && want == "unknown", d != nil && d.Allowed == (want == "allowed"):
		default:
			t.Errorf("%q: %+v", text, st)
		}
		if st.Limits[len(st.Limits)-1].Used != 2 || !st.Stored {
			t.Errorf("%q: %+v", text, st)
		}
	}
	for _, bad := range []string{"5", "5/1h,6/60m"} {
		if _, err := w.open(page.Query{Name: "login", Event: "alice", Limits: bad}); err == nil {
			t.Errorf("took %q", bad)
		}
	}
}

// TestWebOverride checks that a page shows the override of its event and its decision, until the
// override ends.
func TestWebOverride(t *testing.T) {
	now := time.Date(2025, 3, 4, 14, 0, 0, 0, time.UTC)
	client, clock := redistest.Client(t), func() time.Time { return now }
	l, err := window.New(window.On(client), window.Config{Name: redistest.Key(t), Limits: limits(t, "2/1d"), Timeout: time.Minute, Now: clock, Overrides: true})
	for event, o := range map[string]window.Override{
		"more": {Mode: window.OverrideLimits, Limits: limits(t, "3/1d,100/1m"), Why: "a\u202eb", By: "\x1b"}, "none": {Mode: window.OverrideBlock, Why: "it floods us"},
		"all": {Mode: window.OverrideUnlimited, Why: "test", By: "ann"},
	} {
		if err == nil {
			_, err = l.AllowN(t.Context(), event, 2)
		}
		if err == nil {
			err = l.Override(t.Context(), event, o, time.Hour)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &web{client: client, now: clock}
	for event, want := range map[string][2]string{
		"more": {`true 0s 3/1d 100/1m@1s: 3/1d,100/1m until 15:00:00, by "\x1b": "a\u202eb"`, `false 23h0m0s 2/1d: `},
		"none": {`false 1h0m0s 2/1d: block until 15:00:00: it floods us`, `false 23h0m0s 2/1d: `},
		"all":  {`true 0s 2/1d: unlimited until 15:00:00, by ann: test`, `false 23h0m0s 2/1d: `},
	} {
		fetch, err := w.open(page.Query{Name: l.Name(), Event: event, Limits: "2/1d"})
		if err != nil {
			t.Fatal(err)
		}
		if got := webText(t, fetch); got != want[0] {
			t.Errorf("%s: %s, not %s", event, got, want[0])
		}
		now = now.Add(time.Hour)
		webText(t, fetch) // notices the end
		if got := webText(t, fetch); got != want[1] {
			t.Errorf("%s, after the end: %s, not %s", event, got, want[1])
		}
		now = now.Add(-time.Hour)
	}
}

// TestOverrideUnread checks that the command and the page show the counts even if the override
// cannot be read.
func TestOverrideUnread(t *testing.T) {
	client := redistest.Client(t)
	s := &Subject{Name: redistest.Key(t), Event: "alice"}
	if err := client.Do(t.Context(), client.B().Set().Key(s.Name+":{overrides}:o").Value("foreign").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	st, err := s.fetchState(t.Context(), client, limits(t, "3/1h"), nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "could not be read: "
	if shown := st.head(); !st.Allowed || !strings.Contains(shown, "\noverride  "+want) {
		t.Error(shown)
	}
	fetch, err := s.newPoll(client, limits(t, "3/1h"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if shown := webText(t, fetch); !strings.HasPrefix(shown, "true 0s 3/1h: "+want) {
		t.Error(shown)
	}
}

// webText returns what the page receives about a state: the decision, the limits and the override.
func webText(t *testing.T, fetch page.Poll) string {
	t.Helper()
	got, err := fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st := got.(webState)
	words := []string{fmt.Sprint(st.Allowed, " ", time.Duration(st.RetryAfter)*time.Millisecond)}
	for _, sec := range st.Limits {
		words = append(words, sec.name())
	}
	return strings.Join(words, " ") + ": " + st.OverrideText
}
