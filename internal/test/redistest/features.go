package redistest

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/rueidis"
)

// A Feature is something that some tests need and some servers lack. TestServer prints the features
// that the server lacks. Tests that need them are skipped.
type Feature struct {
	name          string
	redis, valkey int // the first versions that have the feature: 901 is 9.1
}

// never means that no version of a server has the Feature.
const never = math.MaxInt

// The features that some servers of the matrix lack.
var (
	DebugFlag  = Feature{"--enable-debug-command, with which TestTrouble makes a server load its data", 700, 0}
	CJSON      = Feature{"cjson (in Debian's builds), which scripts of other libraries in the bench use", 700, 0}
	NoReplicas = Feature{"min-replicas-to-write for scripts, with which lua makes writes fail", 700, 0}
	QuickMoves = Feature{"a cluster in which all nodes learn at once where a slot moved, on which cluster_test runs", 700, 0}
	LuaModule  = Feature{"Lua as a module that can be unloaded", never, 901}
)

var features = []Feature{DebugFlag, CJSON, NoReplicas, QuickMoves, LuaModule}

// Needs skips the test if the server lacks f.
func Needs(tb testing.TB, f Feature) {
	tb.Helper()
	v, err := sharedVersion()
	check(tb, err)
	if f.lacks(v) {
		tb.Skipf("%s lacks %s", v, f.name)
	}
}

// lacks reports whether a server with the given version, such as "Redis 6.0.16", lacks the feature.
func (f Feature) lacks(version string) bool {
	var name string
	var major, minor int
	if _, err := fmt.Sscanf(version, "%s %d.%d", &name, &major, &minor); err != nil {
		return false
	}
	since := f.redis
	if name == "Valkey" {
		since = f.valkey
	}
	return major*100+minor < since
}

var sharedVersion = sync.OnceValues(func() (string, error) {
	c, err := sharedClient()
	if err != nil {
		return "", err
	}
	return version(context.Background(), c), nil
})

// stored returns a value in the format of DUMP, and its expiry time in ms. Redis 6 has no
// PEXPIRETIME, so the script adds PTTL to the current time, and repeats until it has read both
// within the same millisecond.
const stored = `
local function ms() local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end
local now, ttl
repeat now, ttl = ms(), redis.call('PTTL', KEYS[1]) until ms() == now
return {redis.call('DUMP', KEYS[1]) or '', string.format('%.0f', ttl < 0 and ttl or now + ttl)}`

// Stored returns a string that contains the value of key and its expiry time.
func Stored(tb testing.TB, c rueidis.Client, key string) string {
	tb.Helper()
	got, err := c.Do(context.Background(), c.B().Eval().Script(stored).Numkeys(1).Key(key).Build()).AsStrSlice()
	check(tb, err)
	return strconv.Quote(got[0]) + " " + got[1]
}
