package loginhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/login/loginhttp"
	"github.com/slidegate/slidegate/window"
	"github.com/slidegate/slidegate/windowtest"
)

func must[T any](v T, err error) T { return redistest.Must(v, err) }

var (
	errStore = errors.New("the user store is down")
	devices  = must(loginhttp.NewDevices([]byte("0123456789abcdef")))
)

// service is a login form together with the functions that it calls.
type service struct {
	loginhttp.Config
	now     time.Time
	checked []string // accounts whose password was checked
	log     strings.Builder
}

// newService returns a service in which the password of every account is "right".
func newService(guard login.Config) *service {
	s := &service{now: time.Now()}
	guard.Name, guard.Now = "login", func() time.Time { return s.now }
	s.Config = loginhttp.Config{
		Guard: must(login.NewLocal(guard)), Devices: devices, Check: s.check,
		Success: func(w http.ResponseWriter, r *http.Request, account string) {
			http.Redirect(w, r, "/of/"+url.PathEscape(account), http.StatusSeeOther)
		},
		Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	return s
}

// check is the Check of the service.
func (s *service) check(_ context.Context, account, password string) (bool, error) {
	s.checked = append(s.checked, account)
	if password == "store is down" {
		return false, errStore
	}
	return password == "right", nil
}

// ask sends one request, from 198.51.100.7 unless change says otherwise.
func (s *service) ask(method string, fields url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://example.com/login", strings.NewReader(fields.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = "198.51.100.7:50000"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	must(loginhttp.New(s.Config)).ServeHTTP(w, r)
	return w
}

// logIn sends the form.
func (s *service) logIn(account, password string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return s.ask(http.MethodPost, url.Values{"account": {account}, "password": {password}}, change...)
}

// fromAddress makes a request come from the given IP address.
func fromAddress(ip string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(ip), 50000).String() }
}

// withCookies adds cookies to a request.
func withCookies(cookies []*http.Cookie) func(*http.Request) {
	return func(r *http.Request) {
		for _, c := range cookies {
			r.AddCookie(c)
		}
	}
}

// withBody replaces the body of a request.
func withBody(contentType, text string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Content-Type", contentType)
		r.Body = io.NopCloser(strings.NewReader(text))
	}
}

// withHeader sets a header of a request.
func withHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// checkStatus fails the test unless the response has the wanted status.
func checkStatus(t *testing.T, what string, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if w.Code != want {
		t.Errorf("%s: %d %s, want %d", what, w.Code, w.Body, want)
	}
}

// attack fails on the account from many addresses, until unknown devices are denied.
func (s *service) attack(t *testing.T, account string) {
	t.Helper()
	for i := range 250 {
		a, err := s.Guard.Begin(t.Context(), account, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
		if err != nil || !a.Allowed && a.DeniedBy == login.BudgetAccount {
			return
		}
	}
	t.Fatal("the account is not used up")
}

// TestRefused checks the response to each kind of request that does not log in.
func TestRefused(t *testing.T) {
	for name, row := range map[string]struct {
		method  string
		change  func(*http.Request)
		status  int
		says    string
		checked bool
	}{
		"GET":               {http.MethodGet, fromAddress("198.51.100.7"), 200, `<form method="post">`, false},
		"PUT":               {http.MethodPut, fromAddress("198.51.100.7"), 405, "Send the form by POST.", false},
		"wrong":             {http.MethodPost, withBody("application/x-www-form-urlencoded; charset=utf-8", "account=alice&password=a"), 403, "Account or password is wrong.", true},
		"empty account":     {http.MethodPost, withBody("application/x-www-form-urlencoded", "account=+&password=right"), 400, "Enter your account", false},
		"no password":       {http.MethodPost, withBody("application/x-www-form-urlencoded", "account=alice"), 400, "Enter your account", false},
		"from another site": {http.MethodPost, withHeader("Sec-Fetch-Site", "cross-site"), 403, "another site", false},
		"another origin":    {http.MethodPost, withHeader("Origin", "https://evil.example"), 403, "another site", false},
		"text":              {http.MethodPost, withBody("text/plain", "account=alice&password=right"), 415, "Send application", false},
		"no type":           {http.MethodPost, withBody("", "account=alice&password=right"), 415, "Send application", false},
		"no form":           {http.MethodPost, withBody("application/x-www-form-urlencoded", "account=%zz"), 400, "cannot be read", false},
		"no JSON":           {http.MethodPost, withBody("application/json", `["alice"]`), 400, "cannot be read", false},
		"JSON of numbers":   {http.MethodPost, withBody("application/json", `{"account":1}`), 400, "cannot be read", false},
		"large":             {http.MethodPost, withBody("application/x-www-form-urlencoded", "account=alice&password="+strings.Repeat("a", 16<<10)), 413, "too large", false},
		"large JSON":        {http.MethodPost, withBody("application/json", `{"account":"`+strings.Repeat("a", 16<<10)+`"}`), 413, "too large", false},
		"no address":        {http.MethodPost, func(r *http.Request) { r.RemoteAddr = "@" }, 400, "IP address", false},
		"the user store":    {http.MethodPost, withBody("application/x-www-form-urlencoded", "account=alice&password=store+is+down"), 503, "Nobody can log in", true},
		"password in the path": {http.MethodPost, func(r *http.Request) {
			r.URL.RawQuery = "password=right"
			withBody(r.Header.Get("Content-Type"), "account=alice")(r)
		}, 400, "Enter your account", false},
	} {
		s := newService(login.Config{})
		w := s.ask(row.method, url.Values{"account": {"alice"}, "password": {"right"}}, row.change)
		checkStatus(t, name, w, row.status)
		if !strings.Contains(w.Body.String(), row.says) || (len(s.checked) > 0) != row.checked {
			t.Errorf("%s: %s; checked passwords of %q", name, w.Body, s.checked)
		}
		if w.Header().Get("Cache-Control") != "no-store" || len(w.Result().Cookies()) > 0 {
			t.Errorf("%s: %v", name, w.Header())
		}
	}
}

// TestBodyIsNotRead checks that the body is not read if the request comes from another site or the
// body is not a form.
func TestBodyIsNotRead(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"from another site": withHeader("Sec-Fetch-Site", "cross-site"),
		"multipart":         withHeader("Content-Type", "multipart/form-data; boundary=x"),
	} {
		w := newService(login.Config{}).ask(http.MethodPost, nil, change, func(r *http.Request) { r.Body = forbiddenBody{t} })
		if w.Code != http.StatusForbidden && w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// forbiddenBody is a body that fails the test when it is read.
type forbiddenBody struct{ t *testing.T }

func (u forbiddenBody) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func (forbiddenBody) Close() error { return nil }

// TestDenied checks that after five wrong passwords, the page says how long to wait, even the right
// password is not checked, and Retry-After is exact.
func TestDenied(t *testing.T) {
	s := newService(login.Config{})
	for left := range 5 {
		var result loginhttp.Result
		s.Page = func(w http.ResponseWriter, _ *http.Request, r loginhttp.Result) { w.WriteHeader(r.Status); result = r }
		s.logIn("Alice ", "wrong")
		want := loginhttp.Result{Status: 403, Outcome: loginhttp.OutcomeWrong, Message: "Account or password is wrong.", Account: "Alice ", Remaining: int64(4 - left)}
		if left == 4 {
			want.RetryAfter = time.Minute
			want.Message += " Try again in 1 minute, or reset your password."
		}
		if diff := cmp.Diff(want, result); diff != "" {
			t.Error(diff)
		}
	}
	s.Page, s.checked = nil, nil
	w := s.logIn("alice", "right")
	checkStatus(t, "denied", w, 429)
	if w.Header().Get("Retry-After") != "60" || !strings.Contains(w.Body.String(), "Try again in 1 minute, or reset your password.") || s.checked != nil {
		t.Errorf("%v %s; checked passwords of %q", w.Header(), w.Body, s.checked)
	}
	s.now = s.now.Add(time.Minute)
	checkStatus(t, "after Retry-After", s.logIn("alice", "right"), 303)
	if strings.Contains(strings.ToLower(s.log.String()), "alice") {
		t.Error("the log contains what a user typed: ", s.log.String())
	}
}

// TestQuery checks that the query may have any format, and that its fields are ignored.
func TestQuery(t *testing.T) {
	for _, query := range []string{"next=/a;b", "next=100%", "account=bob&password=wrong"} {
		for _, of := range []func(*http.Request){
			withBody("application/x-www-form-urlencoded", "account=alice&password=right"),
			withBody("application/json", `{"account":"alice","password":"right"}`),
		} {
			s := newService(login.Config{})
			w := s.ask(http.MethodPost, nil, of, func(r *http.Request) { r.URL.RawQuery = query })
			if w.Code != 303 || w.Header().Get("Location") != "/of/alice" {
				t.Errorf("%s: %d %v", query, w.Code, w.Header())
			}
		}
	}
}

// TestFormReadBefore checks that a middleware, such as CSRF protection, may read the form before
// the Handler.
func TestFormReadBefore(t *testing.T) {
	w := newService(login.Config{}).logIn("alice", "right", func(r *http.Request) { r.PostFormValue("token") })
	checkStatus(t, "parsed", w, 303)
}

// TestSuccess checks that a successful login gives the charges back, remembers the device, and
// passes the account to Success in its canonical spelling.
func TestSuccess(t *testing.T) {
	s := newService(login.Config{})
	for range 20 {
		w := s.logIn(" ALICE", "right")
		if w.Code != 303 || w.Header().Get("Location") != "/of/alice" || len(w.Result().Cookies()) != 1 {
			t.Fatal(w.Code, w.Header())
		}
	}
	s.SecondFactor = true
	if cookies := s.logIn("alice", "right").Result().Cookies(); len(cookies) > 0 {
		t.Error("known before the second factor", cookies)
	}
}

// TestKnownDevice checks that the owner's browser gets in during an attack, until the password
// changes. An unknown browser must not get in, and neither must the known browser on another
// account.
func TestKnownDevice(t *testing.T) {
	s := newService(login.Config{})
	laptop := s.logIn("alice", "right").Result().Cookies()
	s.attack(t, "alice")
	s.attack(t, "bob")
	checkStatus(t, "unknown device", s.logIn("alice", "right"), 429)
	checkStatus(t, "known device", s.logIn("alice", "right", withCookies(laptop)), 303)
	checkStatus(t, "on another account", s.logIn("bob", "right", withCookies(laptop)), 429)
	var changed time.Time
	var err error
	s.PasswordChanged = func(context.Context, string) (time.Time, error) { return changed, err }
	checkStatus(t, "password never changed", s.logIn("alice", "right", withCookies(laptop)), 303)
	changed = time.Now().Add(time.Hour)
	checkStatus(t, "password changed since", s.logIn("alice", "right", withCookies(laptop)), 429)
	err = errStore
	checkStatus(t, "unknown when", s.logIn("alice", "right", withCookies(laptop)), 503)
}

// TestThief checks that a stolen cookie has its own budget once the owner has logged in again, and
// that the owner's logins do not reset that budget.
func TestThief(t *testing.T) {
	month := 30 * 24 * time.Hour
	s := newService(login.Config{Account: []window.Limit{{Max: 1, Per: month}}}) // so that the thief has no other budget
	stolen := s.logIn("alice", "right").Result().Cookies()
	laptop := s.logIn("alice", "right", withCookies(stolen)).Result().Cookies()
	s.attack(t, "alice")
	tried := 0
	for range 29 {
		for range 24 {
			if s.logIn("alice", "wrong", withCookies(stolen), fromAddress("192.0.2.66")).Code == http.StatusForbidden {
				tried++
			}
			s.now = s.now.Add(time.Hour)
		}
		w := s.logIn("alice", "right", withCookies(laptop))
		checkStatus(t, "the owner", w, 303)
		laptop = w.Result().Cookies()
	}
	if tried != 20 {
		t.Errorf("the thief tried %d passwords, want 20", tried)
	}
}

// TestChallenge checks that the solution to a challenge lets in a user who would otherwise be
// denied, that it is verified only if it is needed, and that it does not replace the password.
func TestChallenge(t *testing.T) {
	s := newService(login.Config{Challenged: &login.Challenged{}})
	asked, solved := 0, error(nil)
	s.Solved = func(r *http.Request, account string) (bool, error) {
		asked++
		return r.PostFormValue("solution") == "of "+account, solved
	}
	var result loginhttp.Result
	s.Page = func(w http.ResponseWriter, _ *http.Request, r loginhttp.Result) { w.WriteHeader(r.Status); result = r }
	logIn := func(password, solution string) *httptest.ResponseRecorder {
		return s.ask(http.MethodPost, url.Values{"account": {"alice"}, "password": {password}, "solution": {solution}})
	}
	checkStatus(t, "not needed", logIn("right", "of alice"), 303)
	if asked > 0 {
		t.Error("a solution was verified although it was not needed")
	}
	s.attack(t, "alice")
	for _, solution := range []string{"", "of bob"} {
		checkStatus(t, "no solution", logIn("right", solution), 429)
		if !result.Challenge || result.RetryAfter <= 0 {
			t.Errorf("%+v", result)
		}
	}
	checkStatus(t, "wrong password", logIn("wrong", "of alice"), 403)
	checkStatus(t, "solved", logIn("right", "of alice"), 303)
	solved = errors.New("the challenge service is down")
	checkStatus(t, "not verified", logIn("right", "of alice"), 429)
	s.Solved = nil
	logIn("right", "of alice")
	if result.Challenge {
		t.Error("a challenge is offered that nobody can solve")
	}
}

// TestJSON checks that a JSON object can be sent instead of a form, and that errors are then
// problem details.
func TestJSON(t *testing.T) {
	s := newService(login.Config{Pair: []window.Limit{window.PerHour(1)}})
	var got []string
	for _, password := range []string{"wrong", "right"} {
		w := s.ask(http.MethodPost, nil, withBody("application/json", `{"account":"alice","password":"`+password+`"}`))
		var problem map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Fatal(err, w.Header())
		}
		got = append(got, strings.TrimSpace(w.Body.String()))
	}
	want := []string{
		`{"title":"Forbidden","status":403,"detail":"Account or password is wrong. Try again in 1 hour, or reset your password.","outcome":"wrong","retry_after":3600,"remaining":0}`,
		`{"title":"Too Many Requests","status":429,"detail":"Too many attempts. Try again in 1 hour, or reset your password.","outcome":"denied","retry_after":3600}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	w := s.ask(http.MethodPost, nil, withBody("application/json", `{"account":"bob","password":"right"}`), fromAddress("192.0.2.1"))
	checkStatus(t, "right", w, 303)
}

// TestHangUp checks that a client that hangs up while its password is being checked is charged, but
// not a client whose attempt fails because the user database is down.
func TestHangUp(t *testing.T) {
	s := newService(login.Config{})
	for range 50 {
		checkStatus(t, "the store is down", s.logIn("alice", "store is down"), 503)
	}
	s.Check = func(ctx context.Context, _, _ string) (bool, error) {
		ctx.Value(hangUp{}).(context.CancelFunc)()
		return false, ctx.Err()
	}
	for range 5 {
		s.logIn("alice", "right", func(r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			*r = *r.WithContext(context.WithValue(ctx, hangUp{}, cancel))
		})
	}
	checkStatus(t, "after five that hung up", s.logIn("alice", "right"), 429)
}

// hangUp is the key of a context's cancel function.
type hangUp struct{}

// TestOutage checks that nobody gets in while Redis is down, that the log has one line about this,
// and that users get in after the outage.
func TestOutage(t *testing.T) {
	server := redistest.Start(t)
	s := newService(login.Config{})
	s.Guard = must(login.New(window.On(server.NewClient(t, nil)), login.Config{Name: "login", Secret: []byte("0123456789abcdef"), Timeout: time.Minute}))
	form := must(loginhttp.New(s.Config))
	logIn := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("account=alice&password=right"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		form.ServeHTTP(w, r)
		return w
	}
	checkStatus(t, "before", logIn(), 303)
	server.Kill(t)
	s.checked = nil
	for range 5 {
		w := logIn()
		checkStatus(t, "during", w, 503)
		if w.Header().Get("Retry-After") != "1" || s.checked != nil {
			t.Errorf("%v; checked passwords of %q", w.Header(), s.checked)
		}
	}
	if n := strings.Count(s.log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors in the log: %s", n, s.log.String())
	}
	server.Restart(t)
	redistest.Eventually(t, "users get in, now that Redis is back", func() bool { return logIn().Code == 303 })
}

// TestFallback checks that the log says why the Fallback decides.
func TestFallback(t *testing.T) {
	s := newService(login.Config{})
	s.Guard = must(login.New(windowtest.Down(), login.Config{Name: "login", Secret: []byte("0123456789abcdef"), Fallback: s.Guard}))
	checkStatus(t, "by the Fallback", s.logIn("alice", "right"), 303)
	if first, _, _ := strings.Cut(s.log.String(), "\n"); !strings.Contains(first, "Fallback decides") || !strings.Contains(first, "this Redis is down") {
		t.Error(s.log.String())
	}
}

// TestBehindProxy checks that users behind a proxy have their own budgets.
func TestBehindProxy(t *testing.T) {
	s := newService(login.Config{})
	s.Clients = must(httplimit.ClientsBehind("10.0.0.0/24"))
	for range 6 {
		s.logIn("alice", "wrong", fromAddress("10.0.0.1"), withHeader("X-Forwarded-For", "198.51.100.7"))
	}
	checkStatus(t, "the same client", s.logIn("alice", "right", fromAddress("10.0.0.1"), withHeader("X-Forwarded-For", "198.51.100.7")), 429)
	checkStatus(t, "another client", s.logIn("alice", "right", fromAddress("10.0.0.1"), withHeader("X-Forwarded-For", "198.51.100.8")), 303)
	checkStatus(t, "no client", s.logIn("alice", "right", fromAddress("10.0.0.1")), 400)
}

// TestEscaping checks that the page escapes what was typed.
func TestEscaping(t *testing.T) {
	page := newService(login.Config{}).logIn(`"><script>alert(1)</script>`, "wrong").Body.String()
	if strings.Contains(page, "<script>") || !strings.Contains(page, `value="&#34;&gt;&lt;script&gt;`) {
		t.Error(page)
	}
}

// TestNames checks that all names of an account share its budget if Config.Account maps them to the
// same account.
func TestNames(t *testing.T) {
	s := newService(login.Config{})
	s.Account = func(_ context.Context, typed string) (string, error) {
		switch typed {
		case "alice", "alice@example.com":
			return "id:42", nil
		case "store is down":
			return "", errStore
		}
		return "", nil
	}
	for i := range 5 {
		checkStatus(t, "wrong", s.logIn([]string{"alice", "alice@example.com"}[i%2], "wrong"), 403)
	}
	checkStatus(t, "the same account", s.logIn("alice", "right"), 429)
	checkStatus(t, "a name that nobody can have", s.logIn("\x00", "right"), 400)
	checkStatus(t, "no answer", s.logIn("store is down", "right"), 503)
}

// TestNew checks that the error says what the configuration lacks.
func TestNew(t *testing.T) {
	for want, change := range map[string]func(*loginhttp.Config){
		"login form without a Guard; ":                      func(c *loginhttp.Config) { c.Guard = &login.Guard{} },
		"login form without Devices; ":                      func(c *loginhttp.Config) { c.Devices = &loginhttp.Devices{} },
		"login form without Check; ":                        func(c *loginhttp.Config) { c.Check = nil },
		"login form without Success; ":                      func(c *loginhttp.Config) { c.Success = nil },
		"with Solved, but its Guard has no challenges; set": func(c *loginhttp.Config) { c.Solved = unsolved },
		"with Solved, but without a Page; ": func(c *loginhttp.Config) {
			c.Solved, c.Guard = unsolved, must(login.NewLocal(login.Config{Name: "login", Challenged: &login.Challenged{}}))
		},
	} {
		cfg := newService(login.Config{}).Config
		change(&cfg)
		if _, err := loginhttp.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// unsolved reports that no challenge was solved.
func unsolved(*http.Request, string) (bool, error) { return false, nil }

// TestRetryAfterText checks that waits are rounded up, so that nobody comes back too early.
func TestRetryAfterText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Millisecond: "1 second", 59 * time.Second: "59 seconds", 59*time.Second + 1: "1 minute", time.Minute: "1 minute", time.Minute + 1: "2 minutes",
		59*time.Minute + 1: "1 hour", 47 * time.Hour: "47 hours", 47*time.Hour + 1: "2 days", 30 * 24 * time.Hour: "30 days",
	} {
		if got := (loginhttp.Result{RetryAfter: d}).RetryAfterText(); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// TestPage checks that docs/login.md shows the form of the example.
func TestPage(t *testing.T) {
	page, example := string(must(os.ReadFile("../../docs/login.md"))), string(must(os.ReadFile("example_test.go")))
	begin, end := strings.Index(example, "\tdevices, err :="), strings.Index(example, "\n\tlogIn := ")
	if begin < 0 || end < begin || !strings.Contains(page, "```go"+strings.ReplaceAll("\n"+example[begin:end], "\n\t", "\n")+"```") {
		t.Error("the form of docs/login.md is not that of the example")
	}
}
