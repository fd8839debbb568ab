package main

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/estimator"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/logtest"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/replay"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
)

// browsers limits how many browsers run at the same time. More would not be faster.
var browsers = make(chan struct{}, 3)

// chromium starts a browser that runs until the test ends. Script errors and violations of the
// content security policy fail the test. chromium may have to wait until another browser ends, so
// call it before any attempt that can expire.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path := redistest.Program(t, "chromium", "chromium", "chromium-browser", "google-chrome")
	browsers <- struct{}{}
	t.Cleanup(func() { <-browsers })
	dir := profile(t) // also used for temporary files, which a killed browser leaves behind
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.UserDataDir(dir), chromedp.Env("TMPDIR="+dir), chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	quiet := func(string, ...any) {} // this version of Chromium sends events that chromedp does not know
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(quiet), chromedp.WithLogf(quiet))
	t.Cleanup(cancel)
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && !strings.Contains(e.Entry.Text, networkChanged) {
				t.Errorf("the browser: %s %s", e.Entry.Text, e.Entry.URL)
			}
		}
	})
	late := time.AfterFunc(time.Minute, cancel) // a browser ends with the context in which it was started
	defer late.Stop()
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// aMinute returns a context that is done when the test ends, or after a minute. A wait that hangs
// then fails by name, even on a busy machine.
func aMinute(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// networkChanged is part of a browser's error when the machine gains or loses a network, which
// happens whenever a container starts or stops. Chromium then drops its connections, even those to
// this machine.
const networkChanged = "net::ERR_NETWORK_CHANGED"

// visit loads a page. If the network changes meanwhile, it loads the page again.
func visit(url string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for {
			changed, err := loadOnce(ctx, url)
			if !changed {
				return err
			}
		}
	})
}

// loadOnce loads a page. It reports whether a part of the page is missing because the network
// changed.
func loadOnce(ctx context.Context, url string) (changed bool, err error) {
	var dropped atomic.Bool
	loading, loaded := context.WithCancel(ctx)
	defer loaded()
	chromedp.ListenTarget(loading, func(event any) {
		if e, ok := event.(*network.EventLoadingFailed); ok && e.ErrorText == networkChanged {
			dropped.Store(true)
		}
	})
	err = chromedp.Navigate(url).Do(ctx)
	return dropped.Load() || strings.Contains(fmt.Sprint(err), networkChanged), err
}

// do runs actions in a browser for at most a minute.
func do(t *testing.T, ctx context.Context, actions ...chromedp.Action) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// follow clicks a link, and waits for its page for at most a minute.
func follow(t *testing.T, ctx context.Context, link string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(link)); err != nil {
		t.Fatal(err)
	}
}

// servePageOf is like servePage, but uses another Redis.
func servePageOf(t *testing.T, redis string, args ...string) string {
	t.Helper()
	url, _ := runPage(t, append([]string{"inspect", "--web", "127.0.0.1:0", "--redis", redis}, args...)...)
	return url
}

// runPage runs slidegate until the test ends. It returns the address of the page, and slidegate's
// output.
func runPage(t *testing.T, args ...string) (url string, out *served) {
	t.Helper()
	out = &served{url: make(chan string, 1)}
	found := out.url
	ctx, cancel := context.WithCancel(t.Context())
	status, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		status = run(ctx, args, cli.Streams{In: strings.NewReader(""), Out: out, Err: out})
	}()
	t.Cleanup(func() {
		cancel()
		if <-ended; status != 0 {
			t.Errorf("status %d: %s", status, out.text.String())
		}
	})
	select {
	case url := <-found:
		return url, out
	case <-ended:
		t.FailNow() // the cleanup reports the reason
	case <-aMinute(t).Done():
		t.Fatal("no page within a minute")
	}
	return "", nil
}

// limiter returns the service's limiter, using the Redis clock.
func (s *service) limiter(t *testing.T, limits string) *window.Limiter {
	t.Helper()
	l, err := window.New(window.On(s.client), window.Config{Name: s.name, Limits: parsed(t, limits), Secret: s.secret, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// allow makes an attempt, and checks whether it is allowed as wanted.
func allow(t *testing.T, l *window.Limiter, event string, want bool) {
	t.Helper()
	if d, err := l.Allow(t.Context(), event); err != nil || d.Allowed != want {
		t.Fatalf("%+v, %v", d, err)
	}
}

// failNow makes the given number of failed attempts, by this machine's clock.
func (g *guardedService) failNow(t *testing.T, account, ip string, times int) {
	t.Helper()
	for range times {
		g.now = time.Now()
		if _, err := g.Begin(t.Context(), account, netip.MustParseAddr(ip)); err != nil {
			t.Fatal(err)
		}
	}
}

// past counts single units, each the given duration before now.
func (s *service) past(t *testing.T, limits, event string, now time.Time, ago ...time.Duration) {
	t.Helper()
	var at time.Time
	l, err := window.New(window.On(s.client), window.Config{Name: s.name, Limits: parsed(t, limits), Timeout: time.Minute, Now: func() time.Time { return at }})
	for _, a := range ago {
		if err == nil {
			at = now.Add(-a)
			_, err = l.Allow(t.Context(), event)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pastFailures makes failed attempts for several users.
func (g *guardedService) pastFailures(t *testing.T, now time.Time) {
	t.Helper()
	for _, ago := range []time.Duration{26 * h, 25 * h, 7 * h, 55 * m, 54 * m, 53 * m, 38 * m, 37 * m, 25 * m, 24 * m, 23 * m, 12 * m, 11 * m} {
		g.now = now.Add(-ago)
		if _, err := g.Begin(t.Context(), "alice", netip.MustParseAddr("192.0.2.31")); err != nil {
			t.Fatal(err)
		}
	}
}

// openSSH returns the file of Loghub's public log of a real attack. The file is not part of this
// repository. If it is missing, the test is skipped.
func openSSH(tb testing.TB) string {
	tb.Helper()
	directory := os.Getenv("SLIDEGATE_DATA")
	if directory == "" {
		directory = filepath.Join("..", "..", "..", "shared", "data")
	}
	file, err := filepath.Abs(filepath.Join(directory, "OpenSSH_2k.log"))
	if err == nil {
		_, err = os.Stat(file)
	}
	if err != nil {
		tb.Skipf("no OpenSSH_2k.log of Loghub here: %v; set SLIDEGATE_DATA to its directory", err)
	}
	return file
}

// checkSVG fails the test if a chart is not well-formed, or does not contain the wanted text.
func checkSVG(t *testing.T, svg, want string) {
	t.Helper()
	if got := textsOf(t, svg); !strings.Contains(got, want) {
		t.Errorf("no %q in the picture: %s", want, got)
	}
}

// textsOf returns the texts in a chart. It fails the test if the chart is not well-formed.
func textsOf(t *testing.T, svg string) string {
	t.Helper()
	var texts strings.Builder
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := token.(xml.CharData); ok {
			texts.Write(s)
		}
	}
}

// text returns the contents of a file.
func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// picturesIn returns a directory whose name looks like that of a picture.
func picturesIn(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pictures.svg")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// older creates a file with the given name and content.
func older(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.Rename(write(t, content), file); err != nil {
		t.Fatal(err)
	}
	return file
}

// A moment is an attempt in a history that all formats can express.
type moment struct {
	at      time.Time
	address string
}

// history returns an invented history in chronological order, with times in whole seconds. Some
// addresses keep retrying, others do not.
func history(n int) (all []moment) {
	r := rand.New(rand.NewPCG(3, 4))
	at := time.Date(2025, time.December, 31, 22, 50, 0, 0, time.UTC)
	for range n {
		at = at.Add(time.Duration(r.IntN(3)) * time.Second)
		all = append(all, moment{at, fmt.Sprintf("192.0.2.%d", 1+r.IntN(1+r.IntN(40)))})
	}
	return all
}

// formats maps the name of each format to a function that writes a moment as a line.
var formats = map[string]func(moment) string{
	"syslog": func(m moment) string {
		return m.at.Format(time.Stamp) + " bastion sshd[7]: Failed password for root from " + m.address + " port 4022 ssh2"
	},
	"journal": func(m moment) string {
		return m.at.Format("2006-01-02T15:04:05-0700") + " bastion sshd-session[7]: Accepted publickey for alice from " + m.address + " port 4022 ssh2: ED25519 SHA256:abc"
	},
	"common": func(m moment) string {
		return m.address + " - - [" + m.at.In(time.FixedZone("", -3*3600-1800)).Format("02/Jan/2006:15:04:05 -0700") + `] "GET /index.html HTTP/1.1" 200 2326`
	},
	"combined": func(m moment) string {
		return m.address + " - alice [" + m.at.Format("02/Jan/2006:15:04:05 -0700") + `] "POST /login HTTP/2.0" 401 97 "https://example.org/" "Mozilla/5.0 (\"quoted\")"`
	},
	"json": func(m moment) string {
		return fmt.Sprintf(`{"level":"info","time":%d.25,"event":%q,"request":{"remote_ip":"203.0.113.1"}}`, m.at.Unix(), m.address)
	},
	"json-rfc3339": func(m moment) string {
		return fmt.Sprintf(`{"event":%q,"units":1,"time":%q}`, m.address, m.at.Format(time.RFC3339Nano))
	},
	"vhost": func(m moment) string {
		return "www.example.org:443 " + m.address + " - - [" + m.at.Format("02/Jan/2006:15:04:05 -0700") + `] "GET / HTTP/1.1" 200 5124 "-" "curl/8.5.0"`
	},
	"alb": func(m moment) string {
		return "h2 " + m.at.Format("2006-01-02T15:04:05.000000Z") + " app/web/50dc6c495c0c9188 " + m.address +
			`:2817 10.0.0.66:9000 0.000 0.002 0.000 200 200 5 257 "GET https://example.org:443/a HTTP/2.0" "curl/8.5.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2`
	},
	"slog": func(m moment) string {
		return "time=" + m.at.Format("2006-01-02T15:04:05.000Z07:00") + ` level=WARN msg="wrong password" user="alice smith" remote_addr=` + m.address + ":4022"
	},
	"go-log": func(m moment) string {
		return m.at.Format("2006/01/02 15:04:05.000000") + " WARN wrong password user=alice ip=" + m.address
	},
	"docker-file": func(m moment) string {
		return `{"log":"{\"msg\":\"wrong password\",\"client_ip\":\"` + m.address + `\"}\n","stream":"stdout","time":"` + m.at.Format("2006-01-02T15:04:05.000000000Z07:00") + `"}`
	},
	"docker-logs": func(m moment) string {
		return m.at.Format("2006-01-02T15:04:05.000000000Z07:00") + " " + m.address + ` - - [04/Mar/2025:05:06:07 +0000] "GET / HTTP/1.1" 200 5124`
	},
	"caddy": func(m moment) string {
		return fmt.Sprintf(`{"level":"info","ts":%d.089,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":%q,"remote_port":"4022","client_ip":%q,"proto":"HTTP/2.0","method":"POST","host":"example.org","uri":"/login","headers":{"User-Agent":["curl/8.5.0"]}},"user_id":"","duration":0.0012,"size":42,"status":401}`,
			m.at.Unix(), m.address, m.address)
	},
	"traefik": func(m moment) string {
		return fmt.Sprintf(`{"ClientAddr":"%s:4022","ClientHost":%q,"DownstreamStatus":401,"Duration":81733,"RequestMethod":"POST","RequestPath":"/login","level":"info","msg":"","time":%q}`,
			m.address, m.address, m.at.Format(time.RFC3339))
	},
	"csv": func(m moment) string {
		return m.at.Format(time.DateTime) + `,"Smith, Alice",` + m.address + ",401"
	},
	"python": func(m moment) string {
		return m.at.Format(time.DateTime) + ",089 - app.login - WARNING - failed login of " + m.address
	},
	"columns": func(m moment) string { return fmt.Sprintf("%d.250,%s", m.at.Unix(), m.address) },
}

// headers maps formats to their header lines. formatFlags maps formats to the flags that they need.
var (
	headers     = map[string]string{"csv": "timestamp,user,ip,status\n"}
	formatFlags = map[string][]string{"python": {"--by", "login of (\\S+)"}}
)

// guardedService is a service with a login guard. Attempts on it fail at given times before the
// afternoon.
type guardedService struct {
	*service
	file string // contains the secret
	now  time.Time
	*login.Guard
}

// newGuardedService returns a guarded service with a name of its own.
func newGuardedService(t *testing.T) *guardedService {
	t.Helper()
	return guard(t, newService(t))
}

// guard adds a login guard, named like the service.
func guard(t *testing.T, s *service) *guardedService {
	t.Helper()
	g := &guardedService{service: s}
	g.secret = []byte("sixteen bytes, or more")
	g.file = write(t, string(g.secret)+"\n")
	var err error
	if g.Guard, err = login.New(window.On(g.client), login.Config{Name: g.name, Secret: g.secret, Timeout: time.Minute, Now: func() time.Time { return g.now }}); err != nil {
		t.Fatal(err)
	}
	return g
}

// fail makes failed attempts at the given times before the afternoon.
func (g *guardedService) fail(t *testing.T, account, ip string, ago ...time.Duration) {
	t.Helper()
	for _, a := range ago {
		g.now = afternoon.Add(-a)
		if _, err := g.Begin(t.Context(), account, netip.MustParseAddr(ip)); err != nil {
			t.Fatal(err)
		}
	}
}

// challenged returns the guard of a service with challenges, at the given time before the
// afternoon.
func (g *guardedService) challenged(t *testing.T, ago time.Duration) *login.Guard {
	t.Helper()
	then := func() time.Time { return afternoon.Add(-ago) }
	c, err := login.New(window.On(g.client), login.Config{Name: g.name, Secret: g.secret, Timeout: time.Minute, Now: then, Challenged: &login.Challenged{}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// failBoth makes failed attempts without a challenge, and then some with a challenge.
func (g *guardedService) failBoth(t *testing.T, account, ip string, without, with []time.Duration) {
	t.Helper()
	address := netip.MustParseAddr(ip)
	for _, ago := range without {
		if a, err := g.challenged(t, ago).Begin(t.Context(), account, address); err != nil || !a.Allowed {
			t.Fatal(a, err)
		}
	}
	for _, ago := range with {
		if a, err := g.challenged(t, ago).BeginChallenged(t.Context(), account, address); err != nil || !a.Allowed {
			t.Fatal(a, err)
		}
	}
}

// inspect runs slidegate inspect --login in the afternoon.
func (g *guardedService) inspect(t *testing.T, want int, flags string, args ...string) string {
	t.Helper()
	all := append([]string{"--login", "--redis", redistest.Addr(t), "--secret-file", g.file}, strings.Fields(flags)...)
	stdout, stderr, status := inAfternoon(t.Context(), append(append(all, g.name), args...)...)
	if status != want || stderr != "" {
		t.Errorf("%q: status %d, not %d: %s", args, status, want, stderr)
	}
	return onDefault(t, g.name, stdout)
}

// seconds returns n points in time, one second apart.
func seconds(from time.Duration, n int) (all []time.Duration) {
	for i := range n {
		all = append(all, from-time.Duration(i)*time.Second)
	}
	return all
}

// afternoon is the time at which the tests run inspect.
var afternoon = time.Date(2025, 3, 4, 14, 0, 0, 0, time.UTC)

// service is a service that counts events. It uses the shared server, unless its client is for
// another.
type service struct {
	name   string
	client rueidis.Client
	secret []byte
}

// newService returns a service with a name of its own on the shared server.
func newService(t *testing.T) *service {
	t.Helper()
	return &service{name: redistest.Key(t), client: redistest.Client(t)}
}

// count counts units under the given limits, at the given times before the afternoon.
func (s *service) count(t *testing.T, limits, event string, units int64, ago ...time.Duration) {
	t.Helper()
	var now time.Time
	l, err := window.New(window.On(s.client), window.Config{Name: s.name, Limits: parsed(t, limits), Secret: s.secret, Timeout: time.Minute, Now: func() time.Time { return now }})
	s.allow(t, l, err, event, units, &now, ago)
}

// raise is like count, but uses ar1 levels.
func (s *service) raise(t *testing.T, limits, event string, units int64, ago ...time.Duration) {
	t.Helper()
	var now time.Time
	l, err := ar1.New(window.On(s.client), ar1.Config{Name: s.name, Limits: parsed(t, limits), Secret: s.secret, Timeout: time.Minute, Now: func() time.Time { return now }})
	s.allow(t, l, err, event, units, &now, ago)
}

// book books single-unit turns of package pace. It returns the limiter, whose clock shows the time
// of the last booking.
func (s *service) book(t *testing.T, limits, event string, ago ...time.Duration) *pace.Limiter {
	t.Helper()
	var now time.Time
	l, err := pace.New(window.On(s.client), pace.Config{Name: s.name, Limits: parsed(t, limits), Secret: s.secret, Timeout: time.Minute, Now: func() time.Time { return now }})
	for _, a := range ago {
		if now = afternoon.Add(-a); err == nil {
			_, err = l.Reserve(t.Context(), event)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (s *service) allow(t *testing.T, l estimator.Limiter, err error, event string, units int64, now *time.Time, ago []time.Duration) {
	t.Helper()
	for _, a := range ago {
		if err == nil {
			*now = afternoon.Add(-a)
			_, err = l.AllowN(t.Context(), event, units)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// parsed parses limits.
func parsed(t *testing.T, text string) flags.Limits {
	t.Helper()
	ls, err := flags.ParseLimits(text)
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

// inAfternoon runs slidegate inspect in the afternoon.
func inAfternoon(ctx context.Context, args ...string) (stdout, stderr string, status int) {
	var out, errs strings.Builder
	status = run(ctx, append([]string{"inspect"}, args...), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Now: func() time.Time { return afternoon }})
	return out.String(), errs.String(), status
}

// m and h keep the histories below short.
const (
	m = time.Minute
	h = time.Hour
)

// onDefault rewrites output as if the limiter were named login and Redis were at the default
// address.
func onDefault(t *testing.T, name, shown string) string {
	t.Helper()
	return strings.NewReplacer(" \\\n     ", "", name, "login", " --redis "+redistest.Addr(t), "", redistest.Addr(t), "127.0.0.1:6379").Replace(shown)
}

// stopper calls stop at a given write.
type stopper struct {
	after int
	stop  func()
	text  strings.Builder
}

func (s *stopper) String() string { return s.text.String() }

func (s *stopper) Write(b []byte) (int, error) {
	if s.after--; s.after == 0 {
		s.stop()
	}
	return s.text.Write(b)
}

// checkFields checks that a page in docs names each field of a JSON text.
func checkFields(t *testing.T, file, json string) {
	t.Helper()
	page := text(t, "../../docs/"+file)
	for _, field := range regexp.MustCompile(`"([a-z_]+)":`).FindAllStringSubmatch(json, -1) {
		if !strings.Contains(page, "`"+field[1]+"`") {
			t.Errorf("docs/%s does not explain %s", file, field[1])
		}
	}
}

// checkGoldenShown checks that a page in docs shows a golden file, indented.
func checkGoldenShown(t *testing.T, file, golden string) {
	t.Helper()
	page := text(t, "../../docs/"+file)
	shown := text(t, filepath.Join("testdata", golden+".golden"))
	indented := strings.ReplaceAll(strings.ReplaceAll("\n"+strings.TrimSpace(shown), "\n", "\n    "), "    \n", "\n")
	if !strings.Contains(page, indented+"\n") {
		t.Errorf("docs/%s does not show %s.golden", file, golden)
	}
}

// guarded runs the command with --login and --json, and parses the output.
func guarded(tb testing.TB, args ...string) replay.LoginReport {
	tb.Helper()
	stdout, stderr, status := command(tb.Context(), append([]string{"replay", "--login", "--json"}, args...)...)
	if status != 0 || stderr != "" {
		tb.Fatalf("status %d: %s", status, stderr)
	}
	var p replay.LoginReport
	if err := json.Unmarshal([]byte(stdout), &p); err != nil {
		tb.Fatal(err)
	}
	return p
}

// An sshdLogin represents a line logged by sshd.
type sshdLogin struct {
	at            time.Time
	from, account string
	succeeded     bool
	times         int
}

func (l sshdLogin) String() string {
	text := fmt.Sprintf("Failed password for %s from %s port 22 ssh2", l.account, l.from)
	if l.succeeded {
		text = fmt.Sprintf("Accepted publickey for %s from %s port 22 ssh2: ED25519 SHA256:abc", l.account, l.from)
	}
	if l.times > 1 {
		text = fmt.Sprintf("message repeated %d times: [ %s]", l.times, text)
	}
	return l.at.Format("2006-01-02T15:04:05.000Z07:00") + " h sshd[1]: " + text
}

// loginNotes returns a log that causes every note that a report can have.
func loginNotes() string {
	at := time.Date(2025, time.March, 4, 5, 6, 7, 0, time.UTC)
	logins := []sshdLogin{
		{at, "192.0.2.1", "alice\x1b[2J", false, 6},
		{at.Add(9 * time.Second), "192.0.2.1", "alice\x1b[2J", true, 1},
		{at.Add(time.Minute), "192.0.2.1", "alice\x1b[2J", true, 1},
		{at.Add(2 * time.Second), "2001:db8::1", "bob", false, 3},
		{at.Add(3 * time.Second), "2001:db8::2", "bob", false, 3},
		{at.Add(4 * time.Second), "2001:db8::3", "bob", true, 2},
		{at, "192.0.2.1", "", false, 3},
		{at, "0.0.0.0", "root", false, 1},
		{at, "host.example.org", "root", false, 1},
	}
	var b strings.Builder
	for _, l := range logins {
		b.WriteString(l.String() + "\n")
	}
	return b.String()
}

// checkGolden compares a text with a golden file. With -update, it writes the file instead.
func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// millionLines returns a log with 20,000 addresses. One in ten lines comes from an address that
// keeps retrying.
func millionLines(tb testing.TB, format string) string {
	tb.Helper()
	var b strings.Builder
	b.WriteString(headers[format])
	at := time.Date(2025, time.March, 4, 5, 6, 7, 0, time.UTC)
	for n := range 1_000_000 {
		address := fmt.Sprintf("10.0.%d.%d", n*7919%20_000/250, n*7919%250)
		if n%10 == 0 {
			address = fmt.Sprintf("192.0.2.%d", n/100_000)
		}
		b.WriteString(formats[format](moment{at.Add(time.Duration(n/10) * time.Second), address}) + "\n")
	}
	return write(tb, b.String())
}

// process represents a running slidegate proxy.
type process struct {
	*exec.Cmd
	url, admin string
	log        chan string // the lines it logs after it is ready
}

// startProxy starts the program, and waits until it is ready.
func startProxy(t *testing.T, program string, args ...string) *process {
	t.Helper()
	return startProxyBy(t, exec.Command(program), args...)
}

// startProxyBy is like startProxy, but runs a command to which slidegate's arguments are appended.
func startProxyBy(t *testing.T, cmd *exec.Cmd, args ...string) *process {
	t.Helper()
	cmd.Args = append(append(cmd.Args, "proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"), args...)
	p := &process{Cmd: cmd, log: make(chan string, 1000)}
	stderr, err := p.StderrPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	late := time.AfterFunc(time.Minute, func() { _ = p.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if at := ready.FindStringSubmatch(lines.Text()); at != nil {
			p.url, p.admin = "http://"+at[1], "http://"+at[2]
			go func() {
				defer close(p.log)
				for lines.Scan() {
					p.log <- lines.Text()
				}
			}()
			return p
		}
	}
	t.Fatal("the proxy ended before it was ready, or was not ready within a minute")
	return nil
}

// logs returns the next line of the log that contains text. It waits for at most a minute.
func (p *process) logs(t *testing.T, text string) string {
	ctx := aMinute(t)
	for {
		select {
		case line, more := <-p.log:
			if strings.Contains(line, text) || !more {
				return line
			}
		case <-ctx.Done():
			t.Errorf("the log has no line with %q", text)
			return ""
		}
	}
}

// get returns the body of the response from a URL.
func get(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// metric returns the sum of all metrics whose name and labels match the pattern.
func (p *process) metric(t *testing.T, pattern string) (sum int) {
	t.Helper()
	for _, found := range regexp.MustCompile(`(?m)^(?:`+pattern+`) (\S+)$`).FindAllStringSubmatch(get(t, p.admin+"/metrics"), -1) {
		value, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += int(value)
	}
	return sum
}

// requests returns the number of requests in the metrics by status.
func (p *process) requests(t *testing.T) map[int]int {
	t.Helper()
	got := map[int]int{}
	for status, decision := range map[int]string{200: "allowed", 429: "denied", 503: "refused"} {
		if n := p.metric(t, `slidegate_requests_total\{[^}]*decision="`+decision+`"[^}]*\}`); n > 0 {
			got[status] = n
		}
	}
	return got
}

// server counts the requests that reach it.
type server struct {
	*httptest.Server
	reached atomic.Int64
}

// startServer starts a server that runs until the test ends.
func startServer(t *testing.T) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.reached.Add(1) }))
	t.Cleanup(s.Close)
	return s
}

func (s *server) count() int { return int(s.reached.Load()) }

// times returns a function that returns true n times.
func times(n int64) func() bool {
	var left atomic.Int64
	left.Store(n)
	return func() bool { return left.Add(-1) >= 0 }
}

// until returns a function that returns true until end is closed.
func until(end <-chan struct{}) func() bool {
	return func() bool {
		select {
		case <-end:
			return false
		default:
			return true
		}
	}
}

var write, packed = logtest.Write, logtest.Packed

// sample is the name of the file that contains the built-in sample.
const sample = "internal/replay/sample.log"

// counts holds the results on which a replay and an exactLog must agree.
type counts struct {
	Attempts, Allowed, Denied, Events int
	DeniedBy                          map[string]int           // by limit
	Longest                           map[string]time.Duration // by event, for the ten events denied most
}

// exactLog models the limits: it keeps the times of all allowed attempts for each event. It shares
// no code with the program.
type exactLog struct {
	limits  map[string]exactLimit
	allowed map[string][]time.Time
	denials map[string]int
	longest map[string]time.Duration
	counts
}

type exactLimit struct {
	max int
	per time.Duration
}

func newExactLog(limits map[string]exactLimit) *exactLog {
	return &exactLog{
		limits: limits, allowed: map[string][]time.Time{}, denials: map[string]int{},
		longest: map[string]time.Duration{}, counts: counts{DeniedBy: map[string]int{}, Longest: map[string]time.Duration{}},
	}
}

func (l *exactLog) attempt(event string, at time.Time) {
	l.Attempts++
	var wait time.Duration
	for name, limit := range l.limits {
		var last []time.Time
		for _, t := range l.allowed[event] {
			if t.After(at.Add(-limit.per)) {
				last = append(last, t)
			}
		}
		if len(last) >= limit.max {
			l.DeniedBy[name]++
			wait = max(wait, last[len(last)-limit.max].Add(limit.per).Sub(at))
		}
	}
	if wait > 0 {
		l.Denied++
		l.denials[event]++
		l.longest[event] = max(l.longest[event], wait)
		return
	}
	l.Allowed++
	l.allowed[event] = append(l.allowed[event], at)
}

// result adds up the counts. Every event has an allowed attempt, because the first is never denied.
func (l *exactLog) result(top []replay.Event) counts {
	l.Events = len(l.allowed)
	for _, e := range top {
		l.Longest[e.Event] = l.longest[e.Event]
	}
	return l.counts
}

// replayed runs the command with --json and parses the output.
func replayed(tb testing.TB, args ...string) replay.Report {
	tb.Helper()
	stdout, stderr, status := command(tb.Context(), append([]string{"replay", "--json"}, args...)...)
	if status != 0 || stderr != "" {
		tb.Fatalf("status %d: %s", status, stderr)
	}
	var p replay.Report
	if err := json.Unmarshal([]byte(stdout), &p); err != nil {
		tb.Fatal(err)
	}
	return p
}

// countsOf returns the counts in a report.
func countsOf(p *replay.Report) counts {
	s := p.Sets[0]
	c := counts{p.Attempts, s.Allowed, s.Denied, p.Events, map[string]int{}, map[string]time.Duration{}}
	for _, l := range s.Limits {
		c.DeniedBy[l.Limit] = l.Denied
	}
	for _, e := range s.Top {
		c.Longest[e.Event] = time.Duration(e.Longest) * time.Millisecond
	}
	return c
}

// places returns flags for each place in which a replay can decide: in memory, on a server and on a
// cluster.
func places(tb testing.TB) map[string][]string {
	tb.Helper()
	return map[string][]string{
		"memory":  nil,
		"redis":   {"--redis", redistest.Addr(tb)},
		"cluster": {"--redis", clusterAddresses(tb)},
	}
}

// clusterAddresses returns the cluster's nodes by their own addresses, as a user would name them.
func clusterAddresses(tb testing.TB) string {
	tb.Helper()
	var reachable []string
	for a := range redistest.Cluster(tb).Nodes() {
		c, err := net.DialTimeout("tcp", a, time.Second)
		if err != nil {
			tb.Skipf("the node %s cannot be reached from here, as is so with Docker on systems other than Linux: %v", a, err)
		}
		c.Close()
		reachable = append(reachable, a)
	}
	return strings.Join(reachable, ",")
}

// checkForgotten fails the test if any server still has a key of the given limiter.
func checkForgotten(tb testing.TB, limiter string) {
	tb.Helper()
	if left := keys(tb, "slidegate-replay-"+strings.TrimPrefix(limiter, "slidegate-replay-")); len(left) > 0 {
		tb.Errorf("keys are left: %q", left)
	}
}

// keys returns the keys on all servers that have the given prefix.
func keys(tb testing.TB, prefix string) (all []string) {
	tb.Helper()
	for _, client := range []rueidis.Client{redistest.Client(tb), redistest.Cluster(tb)} {
		for _, node := range client.Nodes() {
			for cursor := uint64(0); ; {
				page, err := node.Do(tb.Context(), node.B().Scan().Cursor(cursor).Match(prefix+"*").Count(1000).Build()).AsScanEntry()
				if err != nil {
					tb.Fatal(err)
				}
				all = append(all, page.Elements...)
				if cursor = page.Cursor; cursor == 0 {
					break
				}
			}
		}
	}
	return all
}

// limit parses a limit.
func limit(tb testing.TB, s string) window.Limit {
	tb.Helper()
	l, err := window.ParseLimit(s)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// command runs the program with empty standard input.
func command(ctx context.Context, args ...string) (stdout, stderr string, status int) {
	return commandWith(ctx, strings.NewReader(""), args...)
}

// commandWith runs the program with the given standard input.
func commandWith(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, status int) {
	var out, errs strings.Builder
	status = run(ctx, args, cli.Streams{In: stdin, Out: &out, Err: &errs})
	return out.String(), errs.String(), status
}

// profile returns a profile directory for a browser. It is removed after the test. t.TempDir would
// fail the test if a killed browser still writes to the directory.
func profile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "chromium") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for late := time.Now().Add(20 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(late); {
			<-time.After(20 * time.Millisecond)
		}
	})
	return dir
}

// says waits until an element contains a text.
func says(id, text string) chromedp.Action {
	return holds(fmt.Sprintf("document.getElementById(%q)?.textContent.includes(%q)", id, text))
}

// served records the output of a program that serves a page.
type served struct {
	mu   sync.Mutex
	text strings.Builder
	url  chan string
}

func (s *served) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	if found := regexp.MustCompile(`http://[^ ]+`).FindString(s.text.String()); found != "" && s.url != nil {
		s.url <- found
		s.url = nil
	}
	return len(b), nil
}

// shot takes a picture of the whole page.
func shot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	var png []byte
	do(t, ctx, chromedp.FullScreenshot(&png, 100))
	if err := os.WriteFile(filepath.Join(*screens, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}
