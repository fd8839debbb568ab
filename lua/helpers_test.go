package lua_test

import (
	_ "embed"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
)

// script describes one of the scripts for the tests.
type script struct {
	name    string // name of its file, and of the folder with its histories
	source  string
	verbs   []string                                   // its verbs for one event
	grouped int                                        // how many of these, the first ones, also take several events
	unit    time.Duration                              // unit in which times since 1970 are given
	never   int64                                      // the first time that is too late for the script
	most    int64                                      // the maximum number of units, and the largest Max
	limited int                                        // number of arguments for a limit: Per, Max and, if 3, Resolution
	format  byte                                       // the first byte of a record minus its number of sections
	least   int                                        // number of bytes in the shortest record
	layout  func(record string) string                 // formats a record for people
	details func(s script, rest []int64) (string, int) // formats the rest of what inspect replies for a limit, and returns how many numbers that is
	other   func(s script, rest []int64) (string, int) // the same for a section without a limit, after its Per
	foreign func(record string) map[string]string      // derives values from a record that are not records
	life    func(per int64, level float64) int64       // for how many ms a limit remembers a level of that many units
}

// All scripts pass the same tests.
var (
	window = script{
		name: "window", source: lua.Window.Source, verbs: windowVerbs, grouped: 5, unit: time.Millisecond, never: 1 << 47, most: 1 << 53,
		limited: 3, format: 128, least: 13, layout: windowLayout, details: buckets, other: otherBuckets, foreign: noWindow,
		life: func(per int64, _ float64) int64 { return per },
	}
	ar1 = script{
		name: "ar1", source: lua.AR1.Source, verbs: ar1Verbs, grouped: 2, unit: time.Microsecond, never: 1 << 53, most: 1e7,
		limited: 2, format: 160, least: 20, layout: ar1Layout, details: ofLevel, other: otherLevel, foreign: noAR1,
		life: func(per int64, level float64) int64 { return int64(math.Ceil(float64(per) * math.Log(4*level))) },
	}
	scripts = []script{window, ar1}
)

// each runs a test for each script.
func each(t *testing.T, test func(t *testing.T, s script)) {
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) { test(t, s) })
	}
}

// histories returns the files with the histories of the script.
func (s script) histories() []string { return must(filepath.Glob("testdata/" + s.name + "/*.txt")) }

// limit returns Max/Per@Resolution as arguments of the script. A script without a Resolution omits
// it.
func (s script) limit(text string) []string { return must(s.parseLimit(text)) }

// midnight is the time to which the times in the tests are relative: 2023-11-15 00:00 UTC, in ms.
const midnight = 1_700_006_400_000

// midnight returns midnight in the unit of the script.
func (s script) midnight() int64 { return midnight * int64(time.Millisecond/s.unit) }

// instant parses a time after midnight, such as 1h30m or -5s, in the unit of the script.
func (s script) instant(text string) int64 { return must(s.parseInstant(text)) }

// digits formats a number as an argument of the script.
func digits(n int64) string { return strconv.FormatInt(n, 10) }

// at formats a time after midnight as an argument of the script. An empty text means the server's
// time.
func (s script) at(text string) string {
	if text == "" {
		return ""
	}
	return digits(s.instant(text))
}

// shown formats a time for messages, as a time after midnight.
func (s script) shown(instant int64) string {
	return (time.Duration(instant-s.midnight()) * s.unit).String()
}

// span formats a duration in ms for messages.
func span(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func TestMain(m *testing.M) { redistest.Main(m) }

// answer is the outcome of one call of the script.
type answer struct {
	reply  []int64
	err    string // the error of the script, if it returned one
	wrote  string // the command: "", "SET" or "DEL"
	px     string // the PX argument of SET
	stored string // the value afterwards; "" if there is none

	texts []string // for a list of overrides: tag, what, why and by of each override
}

// spy runs the script on events whose names are unique to the test. Its first argument is the verb.
// The event called foreign holds a text, and the one called list a list.
type spy func(tb testing.TB, events []string, args ...string) []answer

// judge runs the script on one event.
type judge func(tb testing.TB, args ...string) answer

// about returns the judge of one event.
func (ask spy) about(event string) judge {
	return func(tb testing.TB, args ...string) answer {
		tb.Helper()
		return ask(tb, []string{event}, args...)[0]
	}
}

// onRedis returns the authoritative judge: a real server.
func (s script) onRedis(tb testing.TB) judge {
	tb.Helper()
	return s.spyOnRedis(tb).about("event")
}

// spyOnRedis returns the spy on a real server.
func (s script) spyOnRedis(tb testing.TB) spy {
	tb.Helper()
	client, prefix := redistest.Client(tb), redistest.Key(tb)+":"
	for _, r := range client.DoMulti(tb.Context(),
		client.B().Set().Key(prefix+"foreign").Value("hello").Build(),
		client.B().Rpush().Key(prefix+"list").Element("hello").Build()) {
		must("", r.Error())
	}
	return func(tb testing.TB, events []string, args ...string) []answer {
		tb.Helper()
		names := keysOf(prefix, events)
		return read(tb, names, s.lua(args, script.spied).Exec(tb.Context(), client, names, args))
	}
}

// keysOf returns the keys of events.
func keysOf(prefix string, events []string) (names []string) {
	for _, event := range events {
		names = append(names, prefix+event)
	}
	return names
}

// read reads the spy's report on the event of each key.
func read(tb testing.TB, names []string, r rueidis.RedisResult) (all []answer) {
	tb.Helper()
	reports, err := r.ToArray()
	if e, ok := rueidis.IsRedisErr(err); ok {
		return slices.Repeat([]answer{failed(e.Error(), names[0])}, len(names))
	}
	if err != nil {
		tb.Fatal(err)
	}
	for i, report := range reports {
		all = append(all, readReport(must(report.ToArray()), names[i]))
	}
	return all
}

// failed returns the answer for an event that fails with the given text.
func failed(text, key string) answer { return answer{err: strings.ReplaceAll(text, key, "KEY")} }

// readReport reads the spy's report on the event of one key.
func readReport(report []rueidis.RedisMessage, key string) (a answer) {
	integers := must(report[0].ToArray())
	if integers[0].IsString() {
		return failed(must(integers[0].ToString()), key)
	}
	a.reply = must(report[0].AsIntSlice())
	if wrote := must(report[1].AsStrSlice()); len(wrote) > 0 {
		a.wrote, a.px = wrote[0], strings.Join(wrote[min(4, len(wrote)):], " ")
	}
	if len(report) > 2 && !report[2].IsNil() {
		a.stored = must(report[2].ToString())
	}
	if len(report) > 3 {
		if texts := must(report[3].AsStrSlice()); len(texts) > 0 {
			a.texts = texts
		}
	}
	return a
}

func must[T any](v T, err error) T { return redistest.Must(v, err) }

// server bundles a client of a real Redis server, a script, and a key of the test.
type server struct {
	*testing.T
	script
	client rueidis.Client
	form   func(script) string // the script as shipped, or inside the spy
	key    string
}

func (s script) on(t *testing.T, client rueidis.Client) server {
	t.Helper()
	return server{t, s, client, script.shipped, redistest.Key(t)}
}

func (s server) call(args ...string) rueidis.RedisResult {
	return s.callOn([]string{s.key}, args)
}

// callOn makes a call for several keys.
func (s server) callOn(keys, args []string) rueidis.RedisResult {
	return s.lua(args, s.form).Exec(s.Context(), s.client, keys, args)
}

// eval runs a script that belongs to the test.
func (s server) eval(script string, args ...string) rueidis.RedisResult {
	s.Helper()
	r := s.client.Do(s.Context(), s.client.B().Eval().Script(script).Numkeys(1).Key(s.key).Arg(args...).Build())
	if err := r.Error(); err != nil {
		s.Fatal(err)
	}
	return r
}

// put stores a string under the key, without an expiry. Any later write adds an expiry, which state
// shows.
func (s server) put(value string) {
	s.Helper()
	s.eval(`return redis.call('SET', KEYS[1], ARGV[1])`, value)
}

// state returns everything that the server stores under the key and that only a write changes.
func (s server) state() string {
	s.Helper()
	const script = `return {redis.call('DUMP', KEYS[1]) or '', tostring(redis.call('PTTL', KEYS[1]))}`
	return fmt.Sprintf("%q", must(s.eval(script).AsStrSlice()))
}

// with returns the arguments of a valid call under the given limits, and one more argument for a
// refund. The call is made at the time at. If at is empty, the call uses the server's time.
func (s script) with(verb, at, units string, limits ...string) []string {
	return s.dated(verb, s.at(at), units, limits...)
}

// dated is like with, but takes the time in the unit of the script.
func (s script) dated(verb, now, units string, limits ...string) (args []string) {
	args = []string{verb, now, units}
	for _, l := range limits {
		args = append(args, s.limit(l)...)
	}
	if verb == "refund" {
		args = append(args, now)
	}
	return args
}

// windowVerbs are the verbs of window.lua for one event, in the order of its header. ar1.lua also has
// each.
var (
	windowVerbs = []string{"allow", "count", "peek", "some", "countsome", "counteach", "inspect", "refund", "reset"}
	groupVerbs  = []string{"joint", "undo"} // with limits of their own for each event
	ar1Verbs    = slices.Insert(slices.Clone(windowVerbs), 5, "each")
)

//go:embed testdata/spy.lua
var spySource string

// luas holds each *rueidis.Lua by its source.
var luas sync.Map

// lua returns the script for a call with the given arguments, in the given form.
func (s script) lua(args []string, form func(script) string) *rueidis.Lua {
	if len(args) > 0 {
		s = s.sent(args[0])
	}
	source := form(s)
	known, ok := luas.Load(source)
	if !ok {
		known, _ = luas.LoadOrStore(source, rueidis.NewLuaScript(source))
	}
	return known.(*rueidis.Lua)
}

// sent returns the script with the source that Go sends for the verb. An unknown verb changes
// nothing.
func (s script) sent(verb string) script {
	if s.name == window.name && slices.Contains(slices.Concat(s.verbs, groupVerbs), verb) {
		s.source = lua.WindowFor(verb).Source
	}
	return s
}

func (s script) shipped() string { return s.source }

// spied returns the script, unchanged, inside the spy.
func (s script) spied() string { return strings.Replace(spySource, "--SCRIPT--", s.source, 1) }

var update = flag.Bool("update", false, "write what the server replies into testdata/*/*.txt")
