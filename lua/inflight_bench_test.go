package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// BenchmarkInflight measures the server's CPU time for a call of each verb, compared with the verb
// allow of window.lua under one limit. A dedicated server gets successive calls on one connection,
// so the CPU time that it spends on the network is included. The numbers are medians over
// alternating rounds: the µs per call, and the ratio to allow, with one holder and with 1000
// holders. Acquiring and releasing one more lease alternate.
func BenchmarkInflight(b *testing.B) {
	redis := redistest.Start(b)
	h := &heldBench{B: b, client: redis.NewClient(b, func(o *rueidis.ClientOption) { o.ForceSingleClient = true }), usage: map[string][]float64{}}
	for range max(b.N, 21) {
		h.allow()
		for _, holders := range []int{1, 999} {
			h.fill(holders)
			h.acquire(holders)
			h.renew(holders)
			h.deny(holders)
		}
	}
	allow := median(h.usage["allow"])
	for what, us := range h.usage {
		b.ReportMetric(median(us), "us/"+what)
		b.ReportMetric(median(us)/allow, what+"/allow")
	}
	b.ReportMetric(0, "ns/op")
}

// A heldBench is a server whose CPU time is measured.
type heldBench struct {
	*testing.B
	client rueidis.Client
	usage  map[string][]float64
	key    string
	tokens []string
}

const benched = 1000 // calls in a round

// cpu returns how many µs of CPU time the server has used.
func (h *heldBench) cpu() (us float64) {
	for line := range strings.Lines(must(h.client.Do(h.Context(), h.client.B().Info().Section("cpu").Build()).ToString())) {
		var seconds float64
		for _, part := range []string{"used_cpu_user", "used_cpu_sys"} {
			if _, err := fmt.Sscanf(line, part+":%f", &seconds); err == nil {
				us += seconds * 1e6
			}
		}
	}
	return us
}

// measure measures the CPU time per call, over a round of calls.
func (h *heldBench) measure(what string, call func(i int)) {
	call(0)
	before := h.cpu()
	for i := range benched {
		call(i + 1)
	}
	h.usage[what] = append(h.usage[what], (h.cpu()-before)/benched)
}

func (h *heldBench) allow() {
	lua, key := rueidis.NewLuaScript(window.source), redistest.Key(h)
	args := window.with("allow", "", "1", "50/1h@1ms")
	h.measure("allow", func(i int) {
		h.is(1, lua.Exec(h.Context(), h.client, []string{fmt.Sprint(key, ":w", i/8)}, args))
	})
}

// is checks the first integer of a reply.
func (h *heldBench) is(want int64, r rueidis.RedisResult) (reply []int64) {
	h.Helper()
	reply, err := r.AsIntSlice()
	if err != nil || reply[0] != want {
		h.Fatal(reply, err)
	}
	return reply
}

var inflightScript = rueidis.NewLuaScript(inflight.source)

func (h *heldBench) call(args ...string) rueidis.RedisResult {
	return inflightScript.Exec(h.Context(), h.client, []string{h.key}, args)
}

// fill creates an event with the given number of holders.
func (h *heldBench) fill(holders int) {
	h.key, h.tokens = redistest.Key(h), nil
	for i := range holders {
		reply := h.is(1, h.call("acquire", "", "60000", fmt.Sprintf("hold%04d", i), "1", "1000"))
		h.tokens = append(h.tokens, digits(reply[3]))
	}
}

func (h *heldBench) acquire(holders int) {
	h.measure(fmt.Sprint("acquire+release:", holders), func(i int) {
		if id := fmt.Sprintf("more%04d", i/2); i%2 == 0 {
			h.is(1, h.call("acquire", "", "60000", id, "1", "1000"))
		} else {
			h.is(1, h.call("release", "", id, "1"))
		}
	})
}

func (h *heldBench) renew(holders int) {
	h.measure(fmt.Sprint("renew:", holders), func(i int) {
		i %= holders
		h.is(1, h.call("renew", "", "60000", fmt.Sprintf("hold%04d", i), "1", "1000", h.tokens[i]))
	})
}

func (h *heldBench) deny(holders int) {
	h.measure(fmt.Sprint("deny:", holders), func(int) {
		h.is(0, h.call("acquire", "", "60000", "too-many", "1", digits(int64(holders))))
	})
}

// median returns the median of at least one number, which it sorts.
func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
