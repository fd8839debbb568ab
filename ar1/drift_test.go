package ar1_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

// drift is a level in another form: the time at which it will have decayed to 1, in ms since the
// start.
type drift struct{ per, c, one, now float64 }

func newDrift(l window.Limit) *drift { return &drift{per: perOf(l), c: peakOf(l), one: math.Inf(-1)} }

func (d *drift) level() float64 { return math.Exp((d.one - d.now) / d.per) }

// step lets us microseconds pass, and counts a unit if it fits. ambiguous reports whether the
// result depends on less than 10 µs.
func (d *drift) step(us int64) (fits, ambiguous bool) {
	d.now += float64(us) / 1000
	x := d.level()
	if x < 0.25 {
		x = 0
	}
	fits = x+1 <= d.c
	ambiguous = math.Abs(d.per*math.Log(x/(d.c-1))) < tolerance || math.Abs(d.per*math.Log(4*d.level())) < tolerance
	if fits {
		d.one = d.now + d.per*math.Log(x+1)
	}
	return fits, ambiguous
}

// attempts returns random times between attempts, in µs: about as many as the limit allows, and
// none whose outcome depends on less than 10 µs.
func attempts(l window.Limit, n int) (times []int64, allowed int, end *drift) {
	rng, d := rand.New(rand.NewPCG(7, uint64(l.Max))), newDrift(l)
	for now := int64(noon); len(times) < n; {
		us := rng.Int64N(2 * l.Per.Microseconds() / l.Max)
		try := *d
		fits, ambiguous := try.step(us)
		if ambiguous {
			continue
		}
		if fits {
			allowed++
		}
		*d, now = try, now+us
		times = append(times, now)
	}
	return times, allowed, d
}

var drifting = []string{"1/1s", "50/1h", "10000/1d"}

// TestAMillionSteps makes a million attempts. The limiter must allow as many as the reference, and
// the time at which the level will have decayed to 1 must be within 1 ms of the reference's. On the
// server, the test makes 50,000 attempts.
func TestAMillionSteps(t *testing.T) {
	steps := 1_000_000
	if testing.Short() {
		steps = 20_000
	}
	for _, text := range drifting {
		l := limits(text)
		t.Run("redis/"+text, func(t *testing.T) {
			times, want, end := attempts(l[0], steps/20)
			onRedis(t, l[0], times, want, end)
		})
		times, want, end := attempts(l[0], steps)
		t.Run("local/"+text, func(t *testing.T) {
			t.Parallel()
			b, got := inMemory(t, ar1.Config{Limits: l}), 0
			for _, now := range times {
				b.clock.us.Store(now)
				if b.allow("e", 1).Allowed {
					got++
				}
			}
			b.near(l[0], got, want, end)
		})
	}
}

// many is a script that runs the script ARGV[1] for an attempt at each of the times ARGV[4],
// ARGV[5] and so on, under one limit. It returns how many attempts are allowed.
const many = `
local script, allowed = assert(loadstring('local KEYS, ARGV = ... ' .. ARGV[1])), 0
for i = 4, #ARGV do
	allowed = allowed + script(KEYS, {'allow', ARGV[i], '1', ARGV[2], ARGV[3]})[1]
end
return allowed`

// onRedis makes the server run the script for a thousand attempts per call, because a million calls
// would take too long.
func onRedis(t *testing.T, l window.Limit, times []int64, want int, end *drift) {
	t.Parallel()
	c, client := newClock(), redistest.Start(t).Client(t)
	b := bench{t, must(ar1.New(window.On(client), ar1.Config{Name: redistest.Key(t), Limits: []window.Limit{l}, Now: c.now, Timeout: time.Minute})), c}
	key := must(b.Inspect(t.Context(), "e")).Key
	got := 0
	for part := range slices.Chunk(times, 1000) {
		args := []string{lua.AR1.Source, fmt.Sprint(l.Per.Milliseconds()), fmt.Sprint(l.Max)}
		for _, now := range part {
			args = append(args, strconv.FormatInt(now, 10))
		}
		got += int(must(client.Do(t.Context(), client.B().Eval().Script(many).Numkeys(1).Key(key).Arg(args...).Build()).AsInt64()))
	}
	c.us.Store(times[len(times)-1])
	b.near(l, got, want, end)
}

func (b bench) near(l window.Limit, got, want int, end *drift) {
	b.Helper()
	off := perOf(l) * math.Log(b.level()/end.level())
	b.Logf("%d allowed; the time is off by %.4f ms", got, off)
	if got != want || !(math.Abs(off) < 1) {
		b.Errorf("%d allowed, not %d; off by %v ms", got, want, off)
	}
}

// TestBytes checks that an event is one key, and takes at most 180 bytes in total with one limit
// and 200 with three, however many events there are.
func TestBytes(t *testing.T) {
	counts := redistest.UnlessShort([]int{40_000, 66_000}, []int{40_000}) // many, because connection buffers count too
	for most, texts := range map[float64][]string{180: {"5/1h"}, 200: {"1/5s", "50/1h", "200/1d"}} {
		client := redistest.Start(t).Client(t)
		l := must(ar1.New(window.On(client), ar1.Config{Name: "login", Limits: limits(texts...), Timeout: time.Minute}))
		countAll(t, l, addresses(0, 1000)) // for the script and the buffers
		must("", client.Do(t.Context(), client.B().Flushall().Build()).Error())
		before, from := usedMemory(t, client), 0
		for _, n := range counts {
			countAll(t, l, addresses(from, n))
			growing := float64(usedMemory(t, client)-before) / float64(n)
			lookUp(t, client, addresses(0, n))
			each := float64(usedMemory(t, client)-before) / float64(n)
			keys := must(client.Do(t.Context(), client.B().Dbsize().Build()).AsInt64())
			t.Logf("%d limits, %d events: %.1f bytes each, %.1f right after their attempts", len(texts), n, each, growing)
			if keys != int64(n) || each > most {
				t.Errorf("%d limits, %d events: %d keys, %.1f bytes each", len(texts), n, keys, each)
			}
			from = n
		}
	}
}

// addresses returns different IP addresses, which serve as events.
func addresses(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("198.51.%d.%d", 100+i>>8, i&255))
	}
	return all
}

// countAll makes one attempt for each event.
func countAll(t *testing.T, l *ar1.Limiter, events []string) {
	t.Helper()
	for part := range slices.Chunk(events, 1000) {
		redistest.AtOnce(len(part), func(i int) { must(l.Allow(t.Context(), part[i])) })
	}
}

// lookUp looks up the keys of events. Each lookup helps the server to grow its hash tables. While
// they grow, it keeps two of each.
func lookUp(t *testing.T, client rueidis.Client, events []string) {
	t.Helper()
	for part := range slices.Chunk(events, 1000) {
		var batch rueidis.Commands
		for _, event := range part {
			batch = append(batch, client.B().Exists().Key("login:{"+event+"}:a").Build())
		}
		for _, reply := range client.DoMulti(t.Context(), batch...) {
			if n := must(reply.AsInt64()); n != 1 {
				t.Fatal("a key is gone")
			}
		}
	}
}

func usedMemory(t *testing.T, client rueidis.Client) (n int64) {
	t.Helper()
	info := must(client.Do(t.Context(), client.B().Info().Section("memory").Build()).ToString())
	_, rest, _ := strings.Cut(info, "used_memory:")
	must(fmt.Sscan(rest, &n))
	return n
}
