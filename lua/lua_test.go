package lua_test

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/lua"
)

func TestMain(m *testing.M) { redistest.Main(m) }

//go:embed testdata/spy.lua
var spy string

// spied returns the script, unchanged, inside the spy.
func (s script) spied() string { return strings.Replace(spy, "--SCRIPT--", s.source, 1) }

// answer is what one call of the script did.
type answer struct {
	reply  []int64
	err    string // that of the script, if it refused
	wrote  string // the command: "", "SET" or "DEL"
	px     string // what it gave SET as PX
	stored string // the value afterwards; "" if there is none
}

// judge runs the script on one key that nobody else uses. Its first argument is the verb.
type judge func(tb testing.TB, args ...string) answer

// onRedis returns the judge that counts: a real server.
func (s script) onRedis(tb testing.TB) judge {
	tb.Helper()
	client, script, key := redistest.Client(tb), lua.New(s.spied()), redistest.Key(tb)
	return func(tb testing.TB, args ...string) answer {
		tb.Helper()
		return read(tb, key, script.Exec(tb.Context(), client, []string{key}, args))
	}
}

// read reads what the spy reports.
func read(tb testing.TB, key string, r rueidis.RedisResult) (a answer) {
	tb.Helper()
	reported, err := r.ToArray()
	if e, ok := rueidis.IsRedisErr(err); ok {
		return answer{err: strings.ReplaceAll(e.Error(), key, "KEY")}
	}
	if err != nil {
		tb.Fatal(err)
	}
	a.reply = must(reported[0].AsIntSlice())
	if wrote := must(reported[1].AsStrSlice()); len(wrote) > 0 {
		a.wrote, a.px = wrote[0], strings.Join(wrote[min(4, len(wrote)):], " ")
	}
	if len(reported) > 2 && !reported[2].IsNil() {
		a.stored = must(reported[2].ToString())
	}
	return a
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
