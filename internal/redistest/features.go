package redistest

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"
)

// A Feature is something that some tests need and some servers lack. TestServer prints the features
// that the server lacks, whose tests are skipped.
type Feature struct {
	name  string
	redis int // the first major version of Redis that has it; every Valkey does
}

// The features that not every server of the matrix has.
var (
	DebugFlag  = Feature{"--enable-debug-command, by which TestTrouble makes a server load its data", 7}
	CJSON      = Feature{"cjson (in Debian's builds), which scripts of other libraries in the bench use", 7}
	NoReplicas = Feature{"min-replicas-to-write for scripts, by which lua makes writes fail", 7}
	QuickMoves = Feature{"a cluster in which all nodes learn at once where a slot moved, on which cluster_test runs", 7}
)

var features = []Feature{DebugFlag, CJSON, NoReplicas, QuickMoves}

// Needs skips a test on a server that lacks the feature.
func Needs(tb testing.TB, f Feature) {
	tb.Helper()
	v, err := sharedVersion()
	check(tb, err)
	if f.lacks(v) {
		tb.Skipf("%s lacks %s", v, f.name)
	}
}

// lacks reports whether a server of that version, such as "Redis 6.0.16", lacks the feature.
func (f Feature) lacks(version string) bool {
	number, isRedis := strings.CutPrefix(version, "Redis ")
	major, _, _ := strings.Cut(number, ".")
	n, err := strconv.Atoi(major)
	return isRedis && err == nil && n < f.redis
}

var sharedVersion = sync.OnceValues(func() (string, error) {
	c, err := sharedClient()
	if err != nil {
		return "", err
	}
	return version(context.Background(), c), nil
})

// stored returns a value in the format of DUMP, and the time at which it expires in ms. Redis 6 has
// no PEXPIRETIME, so the script adds the clock to PTTL, both within one millisecond.
const stored = `
local function ms() local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end
local now, ttl
repeat now, ttl = ms(), redis.call('PTTL', KEYS[1]) until ms() == now
return {redis.call('DUMP', KEYS[1]) or '', string.format('%.0f', ttl < 0 and ttl or now + ttl)}`

// Stored returns the value of a key and when it expires, as a text that changes with either.
func Stored(tb testing.TB, c rueidis.Client, key string) string {
	tb.Helper()
	value, expires := read(tb, c, key)
	return strconv.Quote(value) + " " + expires
}

// Expires returns when a key expires, in ms since 1970.
func Expires(tb testing.TB, c rueidis.Client, key string) int64 {
	tb.Helper()
	_, expires := read(tb, c, key)
	ms, err := strconv.ParseInt(expires, 10, 64)
	check(tb, err)
	return ms
}

func read(tb testing.TB, c rueidis.Client, key string) (value, expires string) {
	tb.Helper()
	got, err := c.Do(context.Background(), c.B().Eval().Script(stored).Numkeys(1).Key(key).Build()).AsStrSlice()
	check(tb, err)
	return got[0], got[1]
}
