// Package monitoring_test tests the dashboard and the alerts in docs/monitoring with a real
// Prometheus. It scrapes proxies, and a program that reports through otelgate. The tests are not in
// module otelgate, because its users would then depend on client_golang.
package monitoring_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/rueidis"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/otelgate"
	"github.com/slidegate/slidegate/window"
)

func TestMain(m *testing.M) {
	http.DefaultClient.Timeout = time.Minute // so that a hang fails here
	redistest.Main(m)
}

func must[T any](v T, err error) T { return redistest.Must(v, err) }

func parseLimits(texts ...string) (all []window.Limit) {
	for _, text := range texts {
		all = append(all, must(window.ParseLimit(text)))
	}
	return all
}

// load holds programs under load, and the addresses of their metrics.
type load struct {
	redis   *underLoad
	proxies []string
	program string
}

// startLoad starts four proxies and a program. One proxy can reach neither Redis nor its server,
// and one has no permission to access its keys. All receive calls until the test ends.
func startLoad(t *testing.T, slidegate string) load {
	t.Helper()
	redis := &underLoad{redistest.Start(t)}
	if err := redis.Do(t.Context(), "ACL", "SETUSER", "stranger", "on", ">password", "~others:*", "+@all").Error(); err != nil {
		t.Fatal(err)
	}
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(origin.Close)
	l := load{redis: redis}
	for _, args := range [][]string{
		{"--to", origin.URL, "--redis", redis.Addr(), "--outage", "closed"},
		{"--to", origin.URL, "--redis", redis.Addr(), "--outage", "local", "--name", "other", "--shadow"},
		{"--to", "http://127.0.0.1:1", "--redis", "127.0.0.1:1", "--outage", "open"},
		{"--to", origin.URL, "--redis", "redis://stranger:password@" + redis.Addr(), "--outage", "local"},
	} {
		l.proxies = append(l.proxies, startProxy(t, slidegate, args))
	}
	l.program = startProgram(t, redis.Server)
	return l
}

// repeat makes calls until the test ends, each a few ms after the previous one.
func repeat(t *testing.T, call func(ctx context.Context, i int)) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			call(ctx, i)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// startProxy runs a proxy and returns the address of its metrics.
func startProxy(t *testing.T, slidegate string, args []string) (admin string) {
	t.Helper()
	found := run(t, regexp.MustCompile(`msg=ready listen=(\S+) .*admin=(\S+)`), slidegate, append([]string{
		"proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--limit", "5/1h", "--route", "/large/ 1000000/1h", "--route", "/free/ none",
	}, args...)...)
	for _, path := range []string{"/", "/large/", "/free/"} {
		repeat(t, func(ctx context.Context, _ int) { request(ctx, "http://"+found[1]+path) })
	}
	return found[2]
}

// request sends a request and ignores the outcome.
func request(ctx context.Context, to string) {
	r := must(http.NewRequestWithContext(ctx, http.MethodGet, to, http.NoBody))
	if res, err := http.DefaultClient.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// startProgram starts limiters that report through otelgate, and returns the address of their
// metrics.
func startProgram(t *testing.T, redis *redistest.Server) (address string) {
	t.Helper()
	registry := client.NewRegistry()
	provider := metric.NewMeterProvider(metric.WithReader(must(exporter.New(exporter.WithRegisterer(registry)))))
	observe := must(otelgate.New(provider))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	t.Cleanup(server.Close)

	client := redis.Client(t)
	cfg := window.Config{Name: "api", Limits: parseLimits("50/1s", "100000/1h"), Timeout: 500 * time.Millisecond, Overrides: true, Observe: observe}
	must("", client.Do(t.Context(), client.B().Set().Key("api:{overrides}:o").Value("foreign").Build()).Error())
	api := must(window.New(window.On(client), cfg))
	cfg.Overrides, cfg.Name, cfg.Limits, cfg.DenialCache = false, "cached", parseLimits("1/1h"), 10
	cached := must(window.New(window.On(client), cfg))
	cfg.Name, cfg.DenialCache = "uncached", 0
	cfg.Fallback = must(window.NewLocal(window.Config{Name: cfg.Name, Limits: cfg.Limits}))
	uncached := must(window.New(window.On(client), cfg))
	stranger := redis.NewClient(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "stranger", "password" })
	forbidden := must(window.New(window.On(stranger), window.Config{Name: "forbidden", Limits: cfg.Limits, Observe: observe}))
	full := must(window.NewLocal(window.Config{Name: "full", Limits: cfg.Limits, MaxEvents: 1, Observe: observe}))

	repeat(t, func(ctx context.Context, i int) { _, _ = api.Allow(ctx, fmt.Sprint(i%10)) })
	repeat(t, func(ctx context.Context, _ int) {
		redistest.AtOnce(2, func(int) { _, _ = api.Allow(ctx, "e") })
		_, _ = api.Allow(ctx, "")
	})
	for _, l := range []*window.Limiter{uncached, cached, forbidden} {
		repeat(t, func(ctx context.Context, _ int) { _, _ = l.Allow(ctx, "e") })
	}
	repeat(t, func(ctx context.Context, i int) { _, _ = full.Allow(ctx, fmt.Sprint(i)) })
	startHolders(t, provider, inflight.Config{Name: "jobs", Max: 1, TTL: time.Second, Observe: observe}, window.On(client))
	return must(url.Parse(server.URL)).Host
}

// startHolders starts two limiters with a single place, which callers hold until it is lost. One
// limiter has a Fallback, and the other has more callers than places.
func startHolders(t *testing.T, provider *metric.MeterProvider, cfg inflight.Config, conn *window.Connection) {
	t.Helper()
	plain := must(inflight.New(conn, cfg))
	cfg.Name, cfg.Fallback = "safe", must(inflight.NewLocal(cfg))
	safe := must(inflight.New(conn, cfg))
	must(otelgate.InFlight(provider, plain, safe))
	for _, l := range []*inflight.Limiter{plain, plain, safe} {
		repeat(t, func(ctx context.Context, _ int) {
			if lease, err := l.Acquire(ctx, "e"); err == nil {
				<-lease.Context(ctx).Done()
			}
		})
	}
}

// underLoad is a Redis server that can be made slow or made to hang.
type underLoad struct{ *redistest.Server }

// slow pauses the server ten times for 100 ms.
func (u *underLoad) slow(t *testing.T) {
	t.Helper()
	for range 10 {
		u.Pause(t)
		<-time.After(100 * time.Millisecond)
		u.Resume(t)
		<-time.After(100 * time.Millisecond)
	}
}

// hang pauses the server for 3 s and meanwhile calls ask every 500 ms.
func (u *underLoad) hang(t *testing.T, ask func()) {
	t.Helper()
	u.Pause(t)
	defer u.Resume(t)
	for range 6 {
		<-time.After(500 * time.Millisecond)
		ask()
	}
}

// scraper is a running Prometheus. It also holds the Redis server of the programs that are scraped.
type scraper struct {
	url   string
	redis *underLoad
}

// startPrometheus starts Prometheus with the alerts, and programs under load.
func startPrometheus(t *testing.T, program string) *scraper {
	t.Helper()
	l := startLoad(t, build(t))
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [%q]\nscrape_configs:\n"+
		"- {job_name: proxy, static_configs: [{targets: [%s]}]}\n- {job_name: program, static_configs: [{targets: [%s]}]}\n",
		must(filepath.Abs(alertsFile)), strings.Join(l.proxies, ", "), l.program)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	found := run(t, regexp.MustCompile(`(?s)msg="Listening on" address=(\S+).*Server is ready`), program,
		"--config.file", config, "--storage.tsdb.path", filepath.Join(t.TempDir(), "data"), "--web.listen-address", "127.0.0.1:0")
	return &scraper{url: "http://" + found[1], redis: l.redis}
}

// killOnEOF is a shell command that kills a program when standard input ends, which happens when
// the tests die.
const killOnEOF = `"$@" </dev/null & read -r forever; kill -KILL $!; wait`

// run starts a program that runs until the test ends. It waits for at most a minute until ready
// matches a line of the log, and returns the match.
func run(t *testing.T, ready *regexp.Regexp, program string, args ...string) (found []string) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", killOnEOF, "sh", program}, args...)...)
	hold, log := must(cmd.StdinPipe()), must(cmd.StderrPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close(); _ = cmd.Wait() })
	late := time.AfterFunc(time.Minute, func() { hold.Close() })
	defer late.Stop()
	lines := bufio.NewScanner(log)
	var all strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&all, lines.Text())
		if found = ready.FindStringSubmatch(all.String()); found != nil {
			go func() {
				for lines.Scan() { // otherwise the program would block
				}
			}()
			return found
		}
	}
	t.Fatalf("%s ended before it was ready, or was not ready within a minute:\n%s", program, &all)
	return nil
}

// get calls the API, and decodes the field "data" of the response.
func (p *scraper) get(t *testing.T, path string, data any) {
	t.Helper()
	res, err := http.Get(p.url + "/api/v1/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %v %s", path, err, answer.Error)
	}
}

// answers reports whether a query returns at least one number. It also checks that all series have
// the labels that the query names.
func (p *scraper) answers(t *testing.T, q query) bool {
	t.Helper()
	var found struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	p.get(t, "query?query="+url.QueryEscape(q.expr), &found)
	numbers := 0
	for _, series := range found.Result {
		if series.Value[1] != "NaN" {
			numbers++
		}
		for _, label := range q.labels {
			if series.Metric[label] == "" {
				t.Errorf("%s: no %s in %v, from %s", q.name, label, series.Metric, q.expr)
			}
		}
	}
	return numbers > 0
}

// alerts returns the alerts that Prometheus has loaded.
func (p *scraper) alerts(t *testing.T) (all []query) {
	t.Helper()
	var loaded struct {
		Groups []struct {
			Rules []struct {
				Name, Query string
				Annotations map[string]string
			}
		}
	}
	p.get(t, "rules", &loaded)
	for _, group := range loaded.Groups {
		for _, rule := range group.Rules {
			q := query{name: "alert " + rule.Name, expr: rule.Query}
			for _, text := range rule.Annotations {
				q.labels = append(q.labels, labelsIn(text)...)
			}
			all = append(all, q)
		}
	}
	if len(all) == 0 {
		t.Fatal("no alerts are loaded")
	}
	return all
}

// exported returns all metrics that Prometheus has scraped so far.
func (p *scraper) exported(t *testing.T) exports {
	t.Helper()
	var all []map[string]string
	p.get(t, "series?match[]="+url.QueryEscape(`{job!=""}`), &all)
	e := exports{}
	for _, series := range all {
		labels := e[series["__name__"]]
		if labels == nil {
			labels = map[string]map[string]bool{}
			e[series["__name__"]] = labels
		}
		for label, value := range series {
			if labels[label] == nil {
				labels[label] = map[string]bool{}
			}
			labels[label][value] = true
		}
		if labels["error_type"] != nil { // the set of values is closed, and no test causes all of them
			for _, r := range []window.Reason{window.ReasonNoAuth, window.ReasonOOM, window.ReasonMisconf, window.ReasonReadOnly, window.ReasonLua} {
				labels["error_type"][string(r)] = true
			}
		}
	}
	return e
}

// query is a query in the dashboard or in an alert.
type query struct {
	name   string // of the panel or alert
	expr   string
	labels []string // the labels that its legend or texts use
}

// labelPattern matches the labels that a legend or the text of an alert uses, such as {{route}}.
var labelPattern = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}`)

func labelsIn(text string) (all []string) {
	for _, found := range labelPattern.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// board represents the part of the dashboard that the tests use.
type board struct {
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		Title   string
		Targets []struct{ Expr, LegendFormat string }
	}
}

// dashboard returns the dashboard with its variables set to match everything, and its rates taken
// over a minute.
func dashboard(t *testing.T) (b board) {
	t.Helper()
	text := string(must(os.ReadFile(dashboardFile)))
	text = strings.NewReplacer("$__rate_interval", "1m", "$limiter", ".*", "$route", ".*").Replace(text)
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// queries returns the queries of all variables and panels.
func (b board) queries() (all []query) {
	for _, v := range b.Templating.List {
		if inside, isValues := strings.CutPrefix(v.Definition, "label_values("); isValues {
			metric, label, _ := strings.Cut(strings.TrimSuffix(inside, ")"), ", ")
			all = append(all, query{"variable " + v.Name, "count by (" + label + ") (" + metric + ")", []string{label}})
		}
	}
	for _, panel := range b.Panels {
		for _, target := range panel.Targets {
			all = append(all, query{"panel " + panel.Title, target.Expr, labelsIn(target.LegendFormat)})
		}
	}
	return all
}

// exports maps each exported metric and label to the set of the label's values.
type exports map[string]map[string]map[string]bool

// build builds the slidegate command.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "slidegate")
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = "../../cmd/slidegate"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
