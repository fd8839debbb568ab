package lua_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// An undoAsk is the part of an undo call for one event: a refund, or a reset if the units are 0.
type undoAsk struct {
	jointAsk
	since int64
}

// TestUndo compares random undo calls, each for one to twelve events with their own limits, with
// successive calls of refund and reset for each of these events: replies, bytes and times to live
// must be the same. An event can occur twice, and some events fail.
func TestUndo(t *testing.T) {
	for seed := range redistest.Share(20) {
		e := newJointTwin(t, rand.New(rand.NewPCG(7, uint64(seed))))
		for range 60 {
			e.passTime()
			for range 4 {
				e.count(t)
			}
			e.undo(t)
		}
	}
}

// count counts units of an event on both copies, if the event's limits allow them.
func (e *jointTwin) count(tb testing.TB) {
	tb.Helper()
	a := jointAsk{string(rune('a' + e.IntN(6))), 1, e.arguments()}
	e.on(tb, e.joint, "count", e.now, a)
	e.on(tb, e.alone, "count", e.now, a)
}

// arguments returns random limits.
func (e *jointTwin) arguments() (args []string) {
	for _, l := range e.limits() {
		args = append(args, e.limit(l)...)
	}
	return args
}

// undo makes a call of undo, and checks its replies and what it leaves.
func (e *jointTwin) undo(tb testing.TB) {
	tb.Helper()
	size, groups := 1+e.IntN(4), 1+e.IntN(3)
	limits := make([][]string, size)
	for i := range limits {
		if e.IntN(4) > 0 {
			limits[i] = e.arguments()
		}
	}
	var asks []undoAsk
	for i := range size * groups {
		a := undoAsk{jointAsk{string(rune('a' + e.IntN(6))), e.Int64N(4), limits[i%size]}, e.now - e.Int64N(e.pers[len(e.pers)-1])}
		if e.IntN(16) == 0 {
			a.event = []string{"foreign", "list"}[e.IntN(2)]
		}
		if a.limits == nil {
			a.units = 0
		}
		asks = append(asks, a)
	}
	reply := must(e.lua([]string{"undo"}, script.shipped).Exec(tb.Context(), e.client, e.keysOf(asks), e.undoArgs(size, asks)).ToArray())
	for i, a := range asks {
		want, err := e.undone(tb, a)
		if text, textErr := reply[i].ToString(); err != nil && (textErr != nil || text != strings.ReplaceAll(err.Error(), e.alone, e.joint)) {
			tb.Fatalf("%+v: %q, %v; alone %v", a, text, textErr, err)
		} else if got, intErr := reply[i].AsInt64(); err == nil && (intErr != nil || got != want) {
			tb.Fatalf("%+v: %v, %v; alone %d", a, got, intErr, want)
		}
	}
	for _, a := range asks {
		equal(tb, fmt.Sprintf("the record after %+v", asks), e.state(tb, e.joint, a.jointAsk), e.state(tb, e.alone, a.jointAsk))
	}
}

func (e *jointTwin) keysOf(asks []undoAsk) (keys []string) {
	for _, a := range asks {
		keys = append(keys, e.joint+a.event)
	}
	return keys
}

// undoArgs returns the arguments of a call with groups of the given size.
func (e *jointTwin) undoArgs(size int, asks []undoAsk) []string {
	args := []string{"undo", digits(e.now)}
	for _, a := range asks {
		args = append(args, digits(a.units), digits(a.since))
	}
	args = append(args, strconv.Itoa(size))
	for _, a := range asks[:size] {
		args = append(append(args, strconv.Itoa(len(a.limits)/3)), a.limits...)
	}
	return args
}

// undone makes a call of refund or reset on the other copy.
func (e *jointTwin) undone(tb testing.TB, a undoAsk) (changed int64, err error) {
	tb.Helper()
	args := slices.Concat([]string{"refund", digits(e.now), digits(a.units)}, a.limits, []string{digits(a.since)})
	if a.units == 0 {
		args = append([]string{"reset", digits(e.now), "1"}, e.arguments()...)
	}
	all, err := e.lua(args, script.shipped).Exec(tb.Context(), e.client, []string{e.alone + a.event}, args).AsIntSlice()
	if err != nil {
		reply, _ := rueidis.IsRedisErr(err)
		return 0, reply
	}
	return all[0], nil
}

// TestBadUndo checks that an undo call with invalid arguments is rejected as a whole, before
// anything is written.
func TestBadUndo(t *testing.T) {
	g := window.groupOn(t, redistest.Client(t))
	valid := func() []string {
		at := window.at("1s")
		return slices.Concat([]string{"undo", window.at("2s"), "1", at, "0", at, "7", at, "3", "1"}, window.limit("5/1m@1s"), []string{"0", "2"}, window.limit("5/1m@1s"), window.limit("20/1h@1m"))
	}
	for name, spoil := range map[string]func(args []string) []string{
		"units below zero":            change(2, "-1"),
		"a fraction of units":         change(4, "1.5"),
		"too many units":              change(6, digits(1<<53+2)),
		"a time that is not a number": change(3, "now"),
		"groups of no event":          change(8, "0"),
		"groups of two":               change(8, "2"),
		"limits below zero":           change(9, "-1"),
		"a limit more than there are": change(13, "1"),
		"a limit less than there are": change(14, "1"),
		"a Per twice":                 change(18, "60000"),
		"one argument too many":       func(args []string) []string { return append(args, "1") },
		"one argument too few":        func(args []string) []string { return args[:len(args)-1] },
		"a time of the last left out": func(args []string) []string { return slices.Delete(args, 7, 8) },
		"no limits":                   func(args []string) []string { return args[:9] },
		"nothing but the verb":        func(args []string) []string { return args[:1] },
	} {
		g.refuses(name, spoil(valid()))
	}
	if err := g.call(valid()).Error(); err != nil {
		t.Error(err)
	}
}
