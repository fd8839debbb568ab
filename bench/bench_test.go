package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	xrate "golang.org/x/time/rate"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

func small(t *testing.T) bench {
	redistest.Needs(t, redistest.CJSON)
	return on(t, redistest.Start(t).Addr())
}

// on returns a bench with few events that uses the servers at the given address.
func on(t *testing.T, addr string) bench {
	servers := must(dial(t.Context(), addr, ""))
	t.Cleanup(servers.close)
	return bench{
		servers: servers, callers: []int{1, 4}, passes: 1, slice: 5 * time.Millisecond,
		rounds: 2, events: 60, memory: 1000, log: log.New(io.Discard, "", 0),
	}
}

// TestBench runs all parts except accuracy and pace on a small scale, including all checks.
func TestBench(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures everything, which takes eight seconds")
	}
	t.Parallel()
	b := small(t)
	var res result
	if err := b.run(t.Context(), order[:3], &res); err != nil {
		t.Fatal(err)
	}
	if all, err := b.contenders(t.Context()); err != nil || len(res.Rows) != len(all) || res.Memory == nil || res.Memory.BytesPerEvent < 50 || res.Memory.Shortest < 20 || res.Rows[0].Event < 50 {
		t.Errorf("result %+v", res)
	}
	for _, r := range res.Rows {
		r.check(t)
	}
	res.Throughput.check(t, throughputRows(b.ours, b.theirs))
	res.Hot.check(t, hotRows(b.ours, b.theirs))
	if text := res.tables(); strings.Count(text, "\n| window, 3 limits") != 25 || strings.Count(text, "\n| window, buckets: 60, denied") != 1 {
		t.Errorf("printed %s", text)
	}
	if object, err := json.Marshal(res); err != nil || !strings.Contains(string(object), `"bytes_per_event":`) {
		t.Errorf("%v, printed %s", err, object)
	}
	res.checkPictures(t)
}

// check fails the test if any figure is impossible.
func (r *throughput) check(t *testing.T, all []contender) {
	t.Helper()
	if len(r.Rows) != len(all)*len(r.Callers) {
		t.Errorf("%d rows of %d contenders", len(r.Rows), len(all))
	}
	for _, row := range r.Rows {
		for name, value := range row.Medians {
			if !(value > 0) || row.Medians["median call, µs"] > row.Medians["99 % call, µs"] {
				t.Errorf("%s, %d callers: %s: %v", row.Name, row.Callers, name, value)
			}
		}
	}
	for _, p := range r.Ratios {
		for name, of := range p.Ratios {
			if !(of.Low > 0) || of.Low > of.Median || of.High < of.Median {
				t.Errorf("%v, %d callers: %s: %v", p.pair, p.Callers, name, of)
			}
		}
	}
}

func (r row) check(t *testing.T) {
	t.Helper()
	if r.Ratio <= 0 || r.Low > r.Ratio || r.High < r.Ratio || r.Micros <= 0 || r.Process <= 0 || r.Allocs <= 0 {
		t.Errorf("row %+v", r)
	}
	if writes := r.Event > 0 && !strings.HasSuffix(r.Name, "denied"); writes && (r.Replicated < 30 || r.Replicated > 2000) || r.Name == "window, 3 limits, denied" && r.Replicated > 1 {
		t.Errorf("%s: %.1f bytes replicated", r.Name, r.Replicated)
	}
}

// checkPictures checks that the pictures name what was measured.
func (r result) checkPictures(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := r.figures().save(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"bench-server.svg": "list and counter, 3 limits", "bench-callers.svg": "window, 3 limits",
		"bench-limits.svg": "limits of 4 buckets each", "bench-buckets.svg": "window, denied",
	} {
		checkPicture(t, filepath.Join(dir, name), want)
	}
}

// checkPicture fails the test if a picture does not contain the wanted text.
func checkPicture(t *testing.T, file, want string) {
	t.Helper()
	if drawn := must(os.ReadFile(file)); !bytes.Contains(drawn, []byte(">"+want+"</text>")) {
		t.Errorf("no %q in %s", want, file)
	}
}

var update = flag.Bool("update", false, "draw docs/bench-*.svg and write the tables of pages again, from docs/bench.json")

// TestPublishedPictures checks that the pictures in docs/performance.md show the published figures.
func TestPublishedPictures(t *testing.T) {
	docs, f := filepath.Join("..", "docs"), publishedFigures(t)
	if *update {
		if err := f.save(docs); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range f.Server {
		if !b.special() {
			checkPicture(t, filepath.Join(docs, "bench-server.svg"), fmt.Sprintf("%.2f", b.Ratio))
		}
	}
	for _, name := range inReadme {
		checkPicture(t, filepath.Join(docs, "bench-most.svg"), fmt.Sprintf("%.0f", math.Round(f.claim(t, name).Most*float64(attacked.max))))
	}
	checkEnds(t, filepath.Join(docs, "bench-callers.svg"), f.Callers, "%.1f", 1000)
	checkEnds(t, filepath.Join(docs, "bench-limits.svg"), f.Limits, "%.2f", 1)
	checkEnds(t, filepath.Join(docs, "bench-buckets.svg"), f.Buckets, "%.2f", 1)
}

// checkEnds checks that a picture contains the last value of each curve, in the given unit.
func checkEnds(t *testing.T, file string, curves []curve, format string, unit float64) {
	t.Helper()
	for _, c := range curves {
		checkPicture(t, file, fmt.Sprintf(format, c.Points[len(c.Points)-1].Y/unit))
	}
}

// TestCluster runs the bench on a cluster, where counts are summed over the masters.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	t.Parallel()
	b := on(t, redistest.Replicated(t).MasterOf(t, 0).Addr())
	b.memory, b.callers = 100, []int{4}
	b.rows = regexp.MustCompile("^(window|ar1|fixed window|log|throttled|ulule)")
	var res result
	if err := b.run(t.Context(), order[:3], &res); err != nil {
		t.Fatal(err)
	}
	if name := b.describe(t.Context()); !strings.HasPrefix(name, "3 masters, ") {
		t.Errorf("on %q", name)
	}
	for _, r := range res.Rows {
		r.check(t)
	}
	if err := res.figures().save(t.TempDir()); err != nil { // of some rows
		t.Error(err)
	}
}

// TestAccuracy checks that the attacks find the known faults of the algorithms, and no fault in
// window.
func TestAccuracy(t *testing.T) {
	if testing.Short() {
		t.Skip("its attacks wait for windows to end")
	}
	t.Parallel()
	b := small(t)
	var res result
	if err := b.run(t.Context(), []string{"accuracy"}, &res); err != nil {
		t.Fatal(err)
	}
	all := res.Accuracy
	for _, a := range all {
		exact := a.Name == "window" || strings.HasPrefix(a.Name, "log in")
		if exact && len(a.Found) > 0 || slices.Contains([]string{counting, bounding, "ulule", rate, "ar1"}, a.Name) && a.Most <= 1 || a.Most > 2.01 {
			t.Errorf("%+v", a)
		}
	}
	attempts, err := b.suspects(t.Context())
	if err != nil || len(all) != len(attempts) || strings.Count(res.tables(), "\n| window | 1.00 |") != 1 {
		t.Errorf("%d contenders of %d, %v, printed %s", len(all), len(attempts), err, res.tables())
	}
}

// TestIncrex checks that there are rows for INCREX if the server supports it, and that the log
// otherwise says why not.
func TestIncrex(t *testing.T) {
	b, text := small(t), &strings.Builder{}
	b.log = log.New(text, "", 0)
	all, err := b.contenders(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = b.client.Do(t.Context(), b.client.B().Arbitrary("INCREX").Keys("key").Build()).Error()
	unknown := err != nil && strings.HasPrefix(err.Error(), "unknown command")
	rows := slices.ContainsFunc(all, func(c contender) bool { return c.name == bounding })
	if rows == unknown || strings.Contains(text.String(), "has no INCREX") != unknown || strings.Count(text.String(), "\n") > 1 {
		t.Errorf("INCREX says %v, rows: %v, logged %q", err, rows, text)
	}
}

// TestBenchMeasuresWhatItSays checks that contenders that do not do what they claim get no figures.
func TestBenchMeasuresWhatItSays(t *testing.T) {
	b := small(t)
	honest := floorRow(b.client, "honest", "", 1, `redis.call('SET', KEYS[1], 'x') return {1}`)
	if err := b.round(t.Context(), []contender{honest}, make([][]sample, 1)); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		lie  func(c *contender)
		want string
	}{
		"it denies":          {func(c *contender) { c.allows = false }, "measures the other"},
		"it keeps two keys":  {func(c *contender) { c.keys = 2 }, "are claimed"},
		"it asks twice":      {func(c *contender) { c.ask = twice(c.ask) }, "calls of evalsha for"},
		"it asks one event":  {func(c *contender) { c.ask = always(c.ask, event(0)) }, "are claimed"},
		"it sends EVAL":      {func(c *contender) { c.ask = eval(b.client) }, "calls of eval"},
		"it loads anew":      {func(c *contender) { c.ask = load(b.client, c.ask) }, "calls of script"},
		"it counts nothing":  {func(c *contender) { c.before, c.ask = honest.before, same(b.client) }, "is as it was before"},
		"it asks by no call": {func(c *contender) { c.ask, c.keys = nothing, 0 }, "0 calls of evalsha"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			liar := honest
			test.lie(&liar)
			err := b.round(t.Context(), []contender{liar}, make([][]sample, 1))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestThroughputMeasuresWhatItSays checks that the throughput part gives no figures to contenders
// that do not do what they claim.
func TestThroughputMeasuresWhatItSays(t *testing.T) {
	b := small(t)
	honest := floorRow(b.client, "honest", "", 1, `redis.call('SET', KEYS[1], 'x') return {1}`)
	honest.merges = true
	state := must(b.stateBefore(t.Context(), honest))
	if s, err := b.measureSlice(t.Context(), honest, state, 4); err != nil || s.scripts != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	tests := map[string]struct {
		lie  func(c *contender)
		want string
	}{
		"it denies":           {func(c *contender) { c.allows = false }, "measures the other"},
		"it asks twice":       {func(c *contender) { c.ask, c.merges = twice(c.ask), false }, "calls of evalsha for"},
		"it asks by no call":  {func(c *contender) { c.ask = nothing }, "0 calls of evalsha"},
		"it merges":           {func(c *contender) { c.ask, c.merges = everyThird(c.ask), false }, "calls of evalsha for"},
		"it makes other keys": {func(c *contender) { c.ask = with(c.ask, "more:") }, "are claimed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			liar := honest
			test.lie(&liar)
			if _, err := b.measureSlice(t.Context(), liar, state, 4); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestMerged checks that the bench counts the script calls per decision.
func TestMerged(t *testing.T) {
	b := small(t)
	c := floorRow(b.client, "honest", "", 1, `redis.call('SET', KEYS[1], 'x') return {1}`)
	c.merges, c.hot = true, true
	state := must(b.stateBefore(t.Context(), c))
	c.ask = everyThird(c.ask)
	if s, err := b.measureSlice(t.Context(), c, state, 4); err != nil || s.scripts > 0.5 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestScriptArguments checks that the row window.lua calls the script with the same arguments as
// window.
func TestScriptArguments(t *testing.T) {
	client := redistest.Client(t)
	at := time.Now().Truncate(time.Millisecond)
	for _, w := range []workload{oneLimit, threeLimits, oneDenied, hotAllowed, hotDenied} {
		byWindow, alone := redistest.Key(t), redistest.Key(t)
		must(windowMaker(client)(w.limits, func() time.Time { return at })(t.Context(), byWindow))
		args := append([]string{"allow", fmt.Sprint(at.UnixMilli()), "1"}, w.args...)
		must(rueidis.NewLuaScript(lua.WindowFor("allow").Source).Exec(t.Context(), client, []string{"login:{" + alone + "}:w"}, args).AsIntSlice())
		get := func(event string) string {
			return must(client.Do(t.Context(), client.B().Get().Key("login:{"+event+"}:w").Build()).ToString())
		}
		if get(byWindow) != get(alone) {
			t.Errorf("%v: window leaves %q, the script %q", w.limits, get(byWindow), get(alone))
		}
	}
}

// TestRows checks that a pattern that matches nothing causes an error, which lists the names.
func TestRows(t *testing.T) {
	b := small(t)
	b.rows = regexp.MustCompile("nobody")
	for _, part := range []string{"throughput", "hot", "server"} {
		err := b.run(t.Context(), []string{part}, &result{})
		if err == nil || !strings.Contains(err.Error(), "redis_rate") {
			t.Errorf("%s: error %v", part, err)
		}
	}
}

// TestFlags checks that an invalid command line is rejected before anything starts.
func TestFlags(t *testing.T) {
	good := bench{passes: 1, rounds: 1, events: 2, span: time.Second}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(b *bench)
		env    environment
		names  []string
		out    output
		want   string
	}{
		"no pass":       {func(b *bench) { b.passes = 0 }, environment{}, nil, output{}, "at least 1 pass"},
		"short span":    {func(b *bench) { b.span = time.Second / 2 }, environment{}, nil, output{}, "span of 1s"},
		"no part":       {func(*bench) {}, environment{}, []string{"-busy"}, output{}, `no part "-busy"; give one or more of throughput`},
		"no directory":  {func(*bench) {}, environment{}, nil, output{plots: file}, "is not a directory"},
		"half a plot":   {func(*bench) {}, environment{}, []string{"server"}, output{plots: t.TempDir()}, "measure both"},
		"negative busy": {func(*bench) {}, environment{busy: -1}, nil, output{}, "at least 0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := good
			test.change(&b)
			if err := run(t.Context(), b, test.env, test.names, test.out); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	for _, text := range []string{"", "0", "1,,2", "1000000", "many"} {
		if err := good.setCallers(text); err == nil {
			t.Errorf("callers %q are taken", text)
		}
	}
}

// everyThird calls f only every third time.
func everyThird(f ask) ask {
	var n atomic.Int64
	return func(ctx context.Context, event string) (bool, error) {
		if n.Add(1)%3 > 0 {
			return true, nil
		}
		return f(ctx, event)
	}
}

// with makes f use another event.
func with(f ask, prefix string) ask {
	return func(ctx context.Context, event string) (bool, error) { return f(ctx, prefix+event) }
}

func same(client rueidis.Client) ask {
	script := rueidis.NewLuaScript(`if not redis.call('GET', KEYS[1]) then redis.call('SET', KEYS[1], 'x') end return {1}`)
	return func(ctx context.Context, event string) (bool, error) {
		return true, script.Exec(ctx, client, []string{"floor:{" + event + "}"}, nil).Error()
	}
}

// TestAlikeInAllSlices checks that a contender that changes its behaviour in a later slice gets no
// figures.
func TestAlikeInAllSlices(t *testing.T) {
	b := small(t)
	var asked atomic.Int64
	script := rueidis.NewLuaScript("return {1}")
	c := floorRow(b.client, "honest", "", 1, `redis.call('SET', KEYS[1], 'x') return {1}`)
	honest := c.ask
	c.ask = func(ctx context.Context, event string) (bool, error) {
		if asked.Add(1) > 200 {
			return true, script.Exec(ctx, b.client, []string{event}, nil).Error()
		}
		return honest(ctx, event)
	}
	b.events = 60
	seen := make([][]sample, 1)
	for range 3 {
		err := b.round(t.Context(), []contender{c}, seen)
		if caught := err != nil; caught {
			return
		}
	}
	t.Error("it is not detected")
}

func twice(f ask) ask {
	return func(ctx context.Context, event string) (bool, error) {
		_, _ = f(ctx, event)
		return f(ctx, event)
	}
}

func always(f ask, event string) ask {
	return func(ctx context.Context, _ string) (bool, error) { return f(ctx, event) }
}

func eval(client rueidis.Client) ask {
	return func(ctx context.Context, event string) (bool, error) {
		return true, client.Do(ctx, client.B().Eval().Script("return redis.call('SET', KEYS[1], 1)").Numkeys(1).Key(event).Build()).Error()
	}
}

func load(client rueidis.Client, f ask) ask {
	return func(ctx context.Context, event string) (bool, error) {
		if err := client.Do(ctx, client.B().ScriptLoad().Script("return 1").Build()).Error(); err != nil {
			return false, err
		}
		return f(ctx, event)
	}
}

func nothing(context.Context, string) (bool, error) { return true, nil }

func address(b bench) (addr string) {
	for addr = range b.masters {
		return addr
	}
	return ""
}

// TestRefusesKeys checks that the bench refuses to use a server that already holds keys.
func TestRefusesKeys(t *testing.T) {
	b := small(t)
	for database := range 2 { // the bench measures in the first database
		client := must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address(b)}, SelectDB: database, ForceSingleClient: true, DisableCache: true}))
		defer client.Close()
		if err := client.Do(t.Context(), client.B().Set().Key("theirs").Value("1").Build()).Error(); err != nil {
			t.Fatal(err)
		}
		if err := b.run(t.Context(), order, &result{}); err == nil || !strings.Contains(err.Error(), "holds 1 keys") {
			t.Errorf("error %v", err)
		}
		if n, err := client.Do(t.Context(), client.B().Del().Key("theirs").Build()).AsInt64(); n != 1 || err != nil {
			t.Errorf("their key is gone: %d, %v", n, err)
		}
	}
}

// BenchmarkLocal measures a decision in memory under one limit: on one hot event or on random
// events, by one caller or by as many as -cpu says. For comparison, it also measures token buckets
// of x/time/rate in a map with a mutex.
func BenchmarkLocal(b *testing.B) {
	for _, events := range []int{1, 1_000, 100_000} {
		names := make([]string, events)
		for i := range names {
			names[i] = event(i)
		}
		l := must(window.NewLocal(window.Config{Name: "login", Limits: []window.Limit{{Max: 1 << 40, Per: time.Hour}}}))
		b.Run(fmt.Sprintf("window/events=%d", events), func(b *testing.B) {
			decideParallel(b, names, func(name string) { must(l.Allow(b.Context(), name)) })
		})
		buckets := &bucketMap{of: map[string]*xrate.Limiter{}}
		b.Run(fmt.Sprintf("rate/events=%d", events), func(b *testing.B) { decideParallel(b, names, buckets.allow) })
	}
}

// bucketMap is what services often build with x/time/rate.
type bucketMap struct {
	mu sync.Mutex
	of map[string]*xrate.Limiter
}

func (m *bucketMap) allow(name string) {
	m.mu.Lock()
	l := m.of[name]
	if l == nil {
		l = xrate.NewLimiter(1e6, 1<<30)
		m.of[name] = l
	}
	m.mu.Unlock()
	if !l.Allow() {
		panic("denied")
	}
}

var seeds atomic.Uint64

// decideParallel decides once on every event before the benchmark's timer starts.
func decideParallel(b *testing.B, names []string, decide func(name string)) {
	b.ReportAllocs()
	for _, name := range names {
		decide(name)
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		rng := rand.New(rand.NewPCG(seeds.Add(1), 0))
		for pb.Next() {
			decide(names[rng.IntN(len(names))])
		}
	})
}
