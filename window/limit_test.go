package window_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestParseLimit checks which texts ParseLimit accepts, and how String formats the limits.
func TestParseLimit(t *testing.T) {
	for _, test := range []struct {
		text  string
		want  window.Limit
		shown string
	}{
		{"5/h", window.PerHour(5), "5/1h"},
		{"5/1h", window.PerHour(5), "5/1h"},
		{"1/5s", window.Every(5 * time.Second), "1/5s"},
		{"100/1d", window.PerDay(100), "100/1d@24m"},
		{"100/1d@24m", window.PerDay(100), "100/1d@24m"},
		{"5/1h@10m", window.Limit{Max: 5, Per: time.Hour, Resolution: 10 * time.Minute}, "5/1h@10m"},
		{"60/1m", window.PerMinute(60), "60/1m"},
		{"61/1m", window.PerMinute(61), "61/1m@1s"},
		{"9/s", window.PerSecond(9), "9/1s"},
		{"9/250ms", window.Limit{Max: 9, Per: 250 * time.Millisecond}, "9/250ms"},
		{"9/1d12h", window.Limit{Max: 9, Per: 36 * time.Hour}, "9/1d12h"},
		{"9/90m", window.Limit{Max: 9, Per: 90 * time.Minute}, "9/1h30m"},
		{"9/1.5h", window.Limit{Max: 9, Per: 90 * time.Minute}, "9/1h30m"},
		{"9/.5s", window.Limit{Max: 9, Per: 500 * time.Millisecond}, "9/500ms"},
		{"9/7d", window.Limit{Max: 9, Per: 7 * 24 * time.Hour}, "9/7d"},
		{"9/w", window.Limit{Max: 9, Per: 7 * 24 * time.Hour}, "9/7d"},
		{"100/2w@1d", window.Limit{Max: 100, Per: 14 * 24 * time.Hour, Resolution: 24 * time.Hour}, "100/14d@1d"},
		{"9/1w2d3h", window.Limit{Max: 9, Per: 219 * time.Hour}, "9/9d3h"},
		{"9/1h0m1s", window.Limit{Max: 9, Per: time.Hour + time.Second}, "9/1h0m1s"},
		{"9007199254740992/1h", window.PerHour(1 << 53), "9007199254740992/1h@1m"},
		{"256/1h@1ms", window.Limit{Max: 256, Per: time.Hour, Resolution: time.Millisecond}, "256/1h@1ms"},
	} {
		got, err := window.ParseLimit(test.text)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", test.text, err, diff)
		}
		if got.String() != test.shown {
			t.Errorf("%s is shown as %s, not %s", test.text, got, test.shown)
		}
	}
}

// TestParseLimitRefuses checks the errors of ParseLimit.
func TestParseLimitRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"":                        "no slash",
		"5":                       "no slash",
		"/1h":                     "number of units",
		"five/1h":                 "number of units",
		"99999999999999999999/1h": "number of units",
		"0/1h":                    "Max of 0",
		"-1/1h":                   "Max of -1",
		"9007199254740993/1h":     "Max of 9007199254740993",
		"5/":                      "not a duration",
		"5/1":                     "not a duration",
		"5/1y":                    "not a duration",
		"5/1h/2":                  "not a duration",
		"5/-1h":                   "not a duration",
		"5/0s":                    "Per of 0s",
		"5/1us":                   "Per of 1µs",
		"5/1500us":                "Per of 1.5ms",
		"5/999999d":               "not a duration",
		"5/99999w":                "not a duration",
		"5/-1d":                   "not a duration",
		"5/-9999999w":             "not a duration",
		"5/1d1w":                  "not a duration",
		"5/1.5w":                  "not a duration",
		"5/15250w2d":              "not a duration",
		"5/106751d24h":            "not a duration",
		"5/1h@":                   "not a duration",
		"5/1h@0s":                 "Resolution of 0",
		"5/1h@2h":                 "Resolution of 2h",
		"500/1h@1ms":              "at least 14.118s",
	} {
		l, err := window.ParseLimit(text)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), `"`+text) {
			t.Errorf("%q gives %v and %v, which does not say %q", text, l, err, says)
		}
	}
}

// TestLimitInText writes and reads limits in JSON, flags and the environment.
func TestLimitInText(t *testing.T) {
	want := []window.Limit{window.Every(5 * time.Second), window.PerDay(100)}
	text := must(json.Marshal(want))
	if string(text) != `["1/5s","100/1d@24m"]` {
		t.Errorf("%s", text)
	}
	var got []window.Limit
	err := json.Unmarshal(text, &got)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if err := json.Unmarshal([]byte(`["5 per hour"]`), &got); err == nil {
		t.Error("a bad limit in JSON is accepted")
	}
}

// FuzzParseLimitAndString checks that String writes what ParseLimit reads as the same limit.
func FuzzParseLimitAndString(f *testing.F) {
	for _, s := range []string{"5/h", "100/1d", "5/1h@10m", "1/1d12h3m4.567s", "61/59ms@1ms", "0/0", "9/0.5d", "9/2w3d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := window.ParseLimit(s)
		if err != nil {
			return
		}
		again, err := window.ParseLimit(l.String())
		if err != nil || again != l {
			t.Fatalf("%q is %+v, shown as %s, which is %+v, %v", s, l, l, again, err)
		}
		if _, err := window.NewLocal(window.Config{Name: "x", Limits: []window.Limit{l}}); err != nil {
			t.Fatalf("%q is parsed, but rejected by New: %v", s, err)
		}
	})
}

// TestConfigRefuses checks that New and NewLocal reject an invalid Config with an error that names
// the value and the remedy.
func TestConfigRefuses(t *testing.T) {
	limits := func(all ...window.Limit) window.Config { return window.Config{Name: "x", Limits: all} }
	counting := func(l window.Limit) window.Config {
		return window.Config{Name: "x", Limits: []window.Limit{l}, CountDenied: true}
	}
	with := func(change func(*window.Config)) window.Config {
		cfg := limits(window.PerHour(5))
		change(&cfg)
		return cfg
	}
	conn, many := window.On(redistest.Client(t)), make([]window.Limit, 32)
	for i := range many {
		many[i] = window.Every(time.Duration(i+1) * time.Second)
	}
	local := must(window.NewLocal(limits(window.PerHour(5))))
	falls := must(window.New(conn, with(func(c *window.Config) { c.Fallback = local })))
	refuses(t, window.NewLocal, []badConfig{
		{window.Config{Name: "x"}, []string{"no limits", "at least one"}},
		{limits(window.PerHour(0)), []string{"Max of 0", "choose 1"}},
		{limits(window.PerHour(-5)), []string{"Max of -5", "choose 1"}},
		{limits(window.PerHour(1<<53 + 1)), []string{"Max of 9007199254740993", "2^53"}},
		{limits(window.PerHour(math.MaxInt64)), []string{"Max of 9223372036854775807"}},
		{limits(window.PerHour(5), window.Limit{Max: 1}), []string{"limit 2", "Per of 0s", "from one"}},
		{limits(window.Every(-time.Second)), []string{"Per of -1s", "from one"}},
		{limits(window.Every(36_526 * 24 * time.Hour)), []string{"Per of 876624h", "100 years"}},
		{limits(window.Every(999 * time.Microsecond)), []string{"Per of 999µs", "whole milliseconds"}},
		{limits(window.Every(1500 * time.Microsecond)), []string{"Per of 1.5ms", "whole milliseconds"}},
		{limits(window.Limit{Max: 1, Per: time.Second, Resolution: 1500 * time.Microsecond}), []string{"Resolution of 1.5ms", "whole milliseconds"}},
		{limits(window.Limit{Max: 1, Per: time.Second, Resolution: -time.Second}), []string{"Resolution of -1s", "or 0"}},
		{limits(window.Limit{Max: 1, Per: time.Second, Resolution: 2 * time.Second}), []string{"Resolution of 2s", "Per of 1s"}},
		{limits(window.PerHour(5), window.PerMinute(1), window.PerHour(9)), []string{"Per of 1h", "5/1h", "9/1h", "tighter"}},
		{limits(window.Limit{Max: 257, Per: time.Hour, Resolution: time.Millisecond}), []string{"Resolution of 1ms", "257 buckets", "at least 14.118s"}},
		{counting(window.Limit{Max: 5, Per: time.Hour, Resolution: time.Second}), []string{"Resolution of 1s", "3601 buckets", "at least 14.118s"}},
		{limits(many...), []string{"32 limits", "at most 31"}},
		{window.Config{Limits: []window.Limit{window.PerHour(5)}}, []string{`name ""`, "1 to 64"}},
		{window.Config{Name: "a{b}", Limits: []window.Limit{window.PerHour(5)}}, []string{`"{"`, "use only"}},
		{window.Config{Name: "a b", Limits: []window.Limit{window.PerHour(5)}}, []string{`" "`, "use only"}},
		{window.Config{Name: "ü", Limits: []window.Limit{window.PerHour(5)}}, []string{"use only"}},
		{window.Config{Name: strings.Repeat("x", 65), Limits: []window.Limit{window.PerHour(5)}}, []string{"65 bytes", "1 to 64"}},
		{window.Config{Name: "x", Limits: []window.Limit{window.PerHour(5)}, Secret: []byte{}}, []string{"Secret of 0 bytes", "at least 16", "nil"}},
		{window.Config{Name: "x", Limits: []window.Limit{window.PerHour(5)}, Secret: []byte("fifteen bytes..")}, []string{"Secret of 15 bytes", "at least 16", "nil"}},
		{limits(window.Every(60)), []string{"Per of 60ns", "did you forget time.Second?"}},
		{with(func(c *window.Config) { c.MaxEvents = -1 }), []string{"a MaxEvents of -1", "say how many"}},
		{with(func(c *window.Config) { c.AllowWhenFull = true }), []string{"AllowWhenFull without MaxEvents", "say how many"}},
		{with(func(c *window.Config) { c.DenialCache = 1 }), []string{"in memory"}},
		{with(func(c *window.Config) { c.Overrides = true }), []string{"Overrides, which are kept in Redis", "only for New"}},
		{with(func(c *window.Config) { c.Fallback = local }), []string{"in memory and has a Fallback", "leave it out"}},
	})
	onRedis := func(cfg window.Config) (*window.Limiter, error) { return window.New(conn, cfg) }
	refuses(t, onRedis, []badConfig{
		{with(func(c *window.Config) { c.MaxEvents = 5 }), []string{"is on Redis and has a MaxEvents", "maxmemory"}},
		{with(func(c *window.Config) { c.DenialCache = -1 }), []string{"DenialCache of -1"}},
		{with(func(c *window.Config) { c.DenialCache, c.CountDenied = 1, true }), []string{"CountDenied and a DenialCache"}},
		{with(func(c *window.Config) { c.DenialCache, c.Now = 1, time.Now }), []string{"real time"}},
		{with(func(c *window.Config) { c.Fallback = falls }), []string{`a Fallback "x" that has a Fallback too`, "leave out one"}},
	})
}

// A badConfig is a Config that New or NewLocal must reject.
type badConfig struct {
	window.Config
	says []string // the value, and the remedy
}

func refuses(t *testing.T, create func(window.Config) (*window.Limiter, error), all []badConfig) {
	t.Helper()
	for _, bad := range all {
		l, err := create(bad.Config)
		if err == nil || l != nil {
			t.Errorf("%+v is taken", bad.Config)
			continue
		}
		for _, says := range bad.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%v: does not say %q", err, says)
			}
		}
	}
}

// TestFinestResolution checks that the Resolution that the error about too many buckets suggests is
// accepted, and that no finer Resolution is.
func TestFinestResolution(t *testing.T) {
	for _, per := range []time.Duration{time.Millisecond, 255 * time.Millisecond, 256 * time.Millisecond, time.Second, time.Hour, 1000 * time.Hour} {
		finest := ms((per.Milliseconds() + 254) / 255)
		l := window.Limit{Max: 1 << 40, Per: per, Resolution: finest}
		if _, err := window.NewLocal(window.Config{Name: "x", Limits: []window.Limit{l}}); err != nil {
			t.Error(err)
		}
		l.Resolution -= time.Millisecond
		if _, err := window.NewLocal(window.Config{Name: "x", Limits: []window.Limit{l}}); l.Resolution > 0 && err == nil {
			t.Errorf("%v is taken", l)
		}
	}
}
