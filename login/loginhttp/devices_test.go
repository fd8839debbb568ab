package loginhttp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

var (
	older = []byte("0123456789abcdef")
	newer = []byte("fedcba9876543210")
)

// newDevices returns Devices with the given secrets.
func newDevices(tb testing.TB, secrets ...[]byte) *Devices {
	tb.Helper()
	d, err := NewDevices(secrets...)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// newCookie returns the cookie that a browser keeps after a login.
func newCookie(d *Devices, account string, now time.Time) *http.Cookie {
	w := httptest.NewRecorder()
	d.remember(w, account, now)
	return w.Result().Cookies()[0]
}

// requestWith returns a login request with the given cookies.
func requestWith(cookies ...*http.Cookie) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/login", http.NoBody)
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return r
}

// TestCookie checks the attributes of the cookie, which decide how a browser handles it.
func TestCookie(t *testing.T) {
	c := newCookie(newDevices(t, older), "alice", time.Now())
	name, ok := strings.CutPrefix(c.Name, "__Host-device-")
	if !ok || len(name) != 20 || !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" || c.SameSite != http.SameSiteLaxMode || c.MaxAge != 365*24*3600 {
		t.Errorf("%+v", c)
	}
}

// TestKnown checks that a cookie makes its device known for one account, for a year, as long as its
// secret is in use.
func TestKnown(t *testing.T) {
	began := time.UnixMilli(1_700_000_000_123)
	d := newDevices(t, older)
	c := newCookie(d, "alice", began)
	for _, row := range []struct {
		what    string
		devices *Devices
		account string
		after   time.Duration
		known   bool
	}{
		{"at once", d, "alice", 0, true},
		{"on a clock that is behind", d, "alice", -time.Minute, true},
		{"from a clock that was a year ahead", d, "alice", -cookieLifetime, false},
		{"on its last day", d, "alice", cookieLifetime - time.Millisecond, true},
		{"expired", d, "alice", cookieLifetime, false},
		{"of another account", d, "bob", 0, false},
		{"in a process with a new secret", newDevices(t, newer, older), "alice", 0, true},
		{"after the secret was dropped", newDevices(t, newer), "alice", 0, false},
	} {
		// An attacker can send the cookie under any name, so the name must not matter.
		sent := *c
		sent.Name = row.devices.keys[len(row.devices.keys)-1].name(row.account)
		id, since := row.devices.known(requestWith(&sent), row.account, began.Add(row.after))
		if (id != "") != row.known || row.known && !since.Equal(began) {
			t.Errorf("%s: %q since %v", row.what, id, since)
		}
	}
}

// TestRotation checks that the first secret signs new cookies, and that a cookie signed with it is
// preferred.
func TestRotation(t *testing.T) {
	both := newDevices(t, newer, older)
	old, young := newCookie(newDevices(t, older), "alice", time.Now()), newCookie(both, "alice", time.Now())
	byBoth, _ := both.Known(requestWith(old, young), "alice")
	byNewer, _ := newDevices(t, newer).Known(requestWith(young), "alice")
	byOlder, _ := newDevices(t, older).Known(requestWith(young), "alice")
	if byBoth == "" || byBoth != byNewer || byOlder != "" {
		t.Errorf("%q, %q, %q", byBoth, byNewer, byOlder)
	}
}

// TestSharedBrowser checks that each account has its own cookie, and that each login sets a new ID.
func TestSharedBrowser(t *testing.T) {
	d := newDevices(t, older)
	alice, bob, again := newCookie(d, "alice", time.Now()), newCookie(d, "bob", time.Now()), newCookie(d, "alice", time.Now())
	r := requestWith(alice, bob)
	a, _ := d.Known(r, "alice")
	b, _ := d.Known(r, "bob")
	c, _ := d.Known(requestWith(again), "alice")
	if a == "" || b == "" || c == "" || a == b || a == c {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}

// TestSecrets checks the errors for secrets that are missing or too short.
func TestSecrets(t *testing.T) {
	for _, row := range []struct {
		secrets [][]byte
		want    string
	}{
		{nil, "slidegate: devices without a secret; give at least 16 random bytes, the same in all processes"},
		{[][]byte{older, older[:15]}, "slidegate: secret 2 of the devices has 15 bytes; give it at least 16 random ones, so that nobody else can sign a cookie"},
	} {
		if _, err := NewDevices(row.secrets...); err == nil || err.Error() != row.want {
			t.Errorf("%v, want %s", err, row.want)
		}
	}
}

// FuzzForgery edits signed values. Only an unchanged value may make a device known, and only for
// its account.
func FuzzForgery(f *testing.F) {
	k := newDevices(f, older).keys[0]
	now := time.UnixMilli(1_700_000_000_123)
	for _, edit := range []struct {
		from, to uint
		by       string
	}{{0, 0, ""}, {0, 1, "2"}, {2, 2, "+"}, {2, 2, "0"}, {16, 18, ""}, {18, 18, " b"}, {18, 99, ""}, {60, 60, "="}, {61, 62, "A"}, {0, 99, "..."}, {0, 99, ""}} {
		f.Add("alice", "ID", "alice", edit.from, edit.to, edit.by)
		f.Add("b alice", "ID", "alice", edit.from, edit.to, edit.by)
	}
	f.Fuzz(func(t *testing.T, owner, device, account string, from, to uint, by string) {
		signed := k.sign(owner, device, now)
		from = min(from, uint(len(signed)))
		value := signed[:from] + by + signed[min(max(from, to), uint(len(signed))):]
		id, since, ok := k.parse(account, value)
		want := account == owner && value == signed && !strings.Contains(device, ".")
		if ok != want || ok && (id != device || !since.Equal(now)) {
			t.Errorf("%q for %q: %q since %v, %t; %q was signed for %q", value, account, id, since, ok, signed, owner)
		}
	})
}
