package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/replay"
)

// An exactWindow models one limit of one subject. Its units are in slots. A slot is forgotten once
// its last unit is as old as the window. It shares no code with the library.
type exactWindow struct {
	max        int
	per, width time.Duration
	slots      []slot
	closed     bool // whether the next unit begins a new slot
}

type slot struct {
	last  time.Time
	units int
}

func (s *exactWindow) wait(now time.Time) (wait time.Duration) {
	s.slots = slices.DeleteFunc(s.slots, func(x slot) bool { return now.Sub(x.last) >= s.per })
	used := 0
	for _, x := range s.slots {
		used += x.units
	}
	for i := 0; used >= s.max; i++ {
		used -= s.slots[i].units
		wait = s.slots[i].last.Add(s.per).Sub(now)
	}
	return wait
}

func (s *exactWindow) charge(now time.Time) {
	n := len(s.slots)
	if n == 0 || s.closed || s.slots[n-1].last.UnixMilli()/s.width.Milliseconds() != now.UnixMilli()/s.width.Milliseconds() {
		s.slots, s.closed = append(s.slots, slot{now, 1}), false
		return
	}
	s.slots[n-1].last = now
	s.slots[n-1].units++
}

func (s *exactWindow) giveBack(charged time.Time) {
	i := slices.IndexFunc(s.slots, func(x slot) bool { return !x.last.Before(charged) })
	if s.slots[i].units--; s.slots[i].units == 0 {
		s.closed = i == len(s.slots)-1
		s.slots = slices.Delete(s.slots, i, i+1)
	}
}

// An exactGuard models the login guard with its default limits. It shares no code with the library.
type exactGuard struct {
	windows map[string][]*exactWindow // by budget and subject
	guardCounts
	subjects map[string]map[string]replay.Event // by kind
}

// guardCounts holds the results on which a replay and an exactGuard must agree.
type guardCounts struct {
	Allowed, Denied, Mistakes int
	By                        map[string]int // denials by budget
	All, Delayed              map[string]int // number of subjects by kind
	Most                      map[string][]replay.Event
}

func newExactGuard() *exactGuard {
	return &exactGuard{
		windows:     map[string][]*exactWindow{},
		guardCounts: guardCounts{By: map[string]int{}},
		subjects:    map[string]map[string]replay.Event{"addresses": {}, "accounts": {}, "pairs": {}},
	}
}

func (g *exactGuard) windowsOf(budget, subject string) []*exactWindow {
	const ms, day = time.Millisecond, 24 * time.Hour
	key := budget + " " + subject
	if g.windows[key] == nil {
		g.windows[key] = map[string][]*exactWindow{
			"address": {{max: 20, per: time.Minute, width: ms}, {max: 50, per: time.Hour, width: ms}, {max: 100, per: day, width: 24 * time.Minute}},
			"pair":    {{max: 5, per: time.Minute, width: ms}, {max: 7, per: 10 * time.Minute, width: ms}, {max: 10, per: time.Hour, width: ms}, {max: 20, per: day, width: ms}, {max: 30, per: 30 * day, width: ms}},
			"account": {{max: 10, per: 10 * time.Minute, width: ms}, {max: 20, per: time.Hour, width: ms}, {max: 50, per: day, width: ms}},
			"streak":  {{max: 80, per: 30 * day, width: 12 * time.Hour}},
			"total":   {{max: 100, per: time.Hour, width: time.Minute}},
		}[budget]
	}
	return g.windows[key]
}

func (g *exactGuard) attempt(at time.Time, from, account string, succeeded bool) {
	address, asked := clientOf(from), []string{"address", "pair", "account", "streak", "total"}
	subject := map[string]string{"address": address, "pair": address + " " + account, "account": account, "streak": account, "total": account}
	denied, wait := "", time.Duration(0)
	for i, budget := range asked {
		for _, s := range g.windowsOf(budget, subject[budget]) {
			wait = max(wait, s.wait(at))
		}
		if wait > 0 {
			denied, asked = budget, asked[:i]
			break
		}
		for _, s := range g.windowsOf(budget, subject[budget]) {
			s.charge(at)
		}
	}
	for _, budget := range asked {
		if succeeded && denied == "" && (budget == "pair" || budget == "streak") {
			delete(g.windows, budget+" "+subject[budget])
		} else if succeeded || denied != "" {
			for _, s := range g.windowsOf(budget, subject[budget]) {
				s.giveBack(at)
			}
		}
	}
	for kind, name := range map[string]string{"addresses": address, "accounts": account, "pairs": address + " " + account} {
		g.subjects[kind][name] = counted(g.subjects[kind][name], name, wait, succeeded)
	}
	g.count(denied, succeeded)
}

func clientOf(from string) string {
	if ip := netip.MustParseAddr(from); ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return from
}

func counted(e replay.Event, name string, wait time.Duration, succeeded bool) replay.Event {
	e.Event = name
	e.Attempts++
	if wait > 0 {
		e.Denied++
		e.Longest = max(e.Longest, wait.Milliseconds())
	}
	if wait > 0 && succeeded {
		e.Succeeded++
	}
	return e
}

func (g *exactGuard) count(denied string, succeeded bool) {
	if denied == "" {
		g.Allowed++
		return
	}
	g.Denied++
	g.By[denied]++
	if succeeded {
		g.Mistakes++
	}
}

// result adds up the counts. Each list is sorted by its number, then by the longest wait, then by
// name.
func (g *exactGuard) result() guardCounts {
	c := g.guardCounts
	c.All, c.Delayed, c.Most = map[string]int{}, map[string]int{}, map[string][]replay.Event{}
	for kind, events := range g.subjects {
		var delayed, mistakes []replay.Event
		for _, e := range events {
			if e.Denied > 0 {
				delayed = append(delayed, e)
			}
			if e.Succeeded > 0 {
				mistakes = append(mistakes, e)
			}
		}
		c.All[kind], c.Delayed[kind] = len(events), len(delayed)
		c.Most[kind] = firstTen(delayed, func(e replay.Event) int { return e.Denied })
		if kind == "pairs" {
			c.Most["by mistake"] = firstTen(mistakes, func(e replay.Event) int { return e.Succeeded })
		}
	}
	return c
}

func firstTen(events []replay.Event, number func(replay.Event) int) []replay.Event {
	slices.SortFunc(events, func(a, b replay.Event) int {
		if number(a) != number(b) {
			return number(b) - number(a)
		}
		if a.Longest != b.Longest {
			return int(b.Longest - a.Longest)
		}
		return strings.Compare(a.Event, b.Event)
	})
	return append([]replay.Event{}, events[:min(10, len(events))]...)
}

func loginCounts(p *replay.LoginReport) guardCounts {
	c := guardCounts{
		Allowed: p.Allowed, Denied: p.Denied, Mistakes: p.DeniedSucceeded, By: map[string]int{},
		All:     map[string]int{"addresses": p.Addresses.Count, "accounts": p.Accounts.Count, "pairs": p.Pairs.Count},
		Delayed: map[string]int{"addresses": p.Addresses.Denied, "accounts": p.Accounts.Denied, "pairs": p.Pairs.Denied},
		Most:    map[string][]replay.Event{"addresses": p.Addresses.Top, "accounts": p.Accounts.Top, "pairs": p.Pairs.Top, "by mistake": p.ByMistake},
	}
	for _, b := range p.Budgets {
		if b.Denied > 0 {
			c.By[string(b.Budget)] = b.Denied
		}
	}
	return c
}

var exactLogin = regexp.MustCompile(`(?m)^(\w+ +\d+ \S+) \S+ sshd\[\d+\]: (?:message repeated (\d+) times: \[ )?(Failed|Accepted) \S+ for (?:invalid user )?(.*) from ([0-9a-f.:]+) port \d+ `)

// guardExactly replays a log on an exactGuard. It parses the log with a single regular expression,
// and assumes that it starts in July.
func guardExactly(tb testing.TB, log string) *exactGuard {
	tb.Helper()
	exact := newExactGuard()
	for _, m := range exactLogin.FindAllStringSubmatch(log, -1) {
		at, err := time.Parse("Jan _2 15:04:05", m[1])
		if err != nil {
			tb.Fatal(err)
		}
		if at.Month() < time.July {
			at = at.AddDate(1, 0, 0)
		}
		times, _ := strconv.Atoi(m[2])
		for range max(1, times) {
			exact.attempt(at.AddDate(2000, 0, 0), m[5], m[4], m[3] == "Accepted")
		}
	}
	return exact
}

// TestLoginOnARealAttack replays a public log of a real attack. The log is not part of this
// repository.
func TestLoginOnARealAttack(t *testing.T) {
	file := openSSH(t)
	exact, got := guardExactly(t, text(t, file)), guarded(t, file)
	if diff := cmp.Diff(exact.result(), loginCounts(&got)); diff != "" {
		t.Errorf("it differs from the exact guard (-exact +replay):\n%s", diff)
	}
	t.Logf("%+v", exact.guardCounts)
}

func TestLoginOnTheSample(t *testing.T) {
	exact, got := guardExactly(t, text(t, sample)), guarded(t)
	if diff := cmp.Diff(exact.result(), loginCounts(&got)); diff != "" {
		t.Errorf("it differs from the exact guard (-exact +replay):\n%s", diff)
	}
}

// someWeeks returns n random logins: by a botnet on root, by an address that tries lists of
// accounts, by a few addresses that keep retrying on alice, and by users who mostly have the right
// password.
func someWeeks(n int) (all []sshdLogin) {
	r := rand.New(rand.NewPCG(7, 8))
	at := time.Date(2025, time.January, 2, 3, 4, 5, 0, time.UTC)
	for range n {
		if at = at.Add(time.Duration(1+r.IntN(15_000)) * time.Millisecond); r.IntN(12) == 0 {
			at = at.Add(time.Duration(r.IntN(5000)) * time.Second)
		}
		l := sshdLogin{at: at, times: 1}
		switch actor := r.IntN(20); {
		case actor < 6:
			l.from, l.account = fmt.Sprintf("2001:db8:%x::%x", r.IntN(200), r.IntN(5)), "root"
		case actor < 13:
			l.from, l.account = "203.0.113.7", fmt.Sprintf("user-%d", r.IntN(900))
		case actor < 16:
			l.from, l.account, l.times = fmt.Sprintf("198.51.100.%d", r.IntN(40)), "alice", 1+r.IntN(3)
		default:
			name := r.IntN(6)
			l.from, l.account, l.succeeded = fmt.Sprintf("192.0.2.%d", name/2), []string{"alice", "bob", "carol", "dora", "eve", "root"}[name], r.IntN(5) > 0 && name < 5
		}
		all = append(all, l)
	}
	return all
}

// TestLoginIsDecidedExactly checks that weeks of random logins get the same decisions as from an
// exactGuard, whether they are in order or sorted by --sort.
func TestLoginIsDecidedExactly(t *testing.T) {
	exact, logins := newExactGuard(), someWeeks(12_000)
	var lines []string
	for _, l := range logins {
		for range l.times {
			exact.attempt(l.at, l.from, l.account, l.succeeded)
		}
		lines = append(lines, l.String()+"\n")
	}
	want := exact.result()
	got := guarded(t, write(t, strings.Join(lines, "")))
	if diff := cmp.Diff(want, loginCounts(&got)); diff != "" {
		t.Errorf("it differs from the exact guard (-exact +replay):\n%s", diff)
	}
	for _, budget := range []string{"address", "pair", "account", "streak"} {
		if want.By[budget] < 20 || want.Mistakes < 20 {
			t.Errorf("a poor history: %d denials of the budget %s, %d by mistake", want.By[budget], budget, want.Mistakes)
		}
	}
	slices.Reverse(lines)
	got = guarded(t, "--sort", write(t, strings.Join(lines, "")))
	if diff := cmp.Diff(want, loginCounts(&got)); diff != "" || got.OutOfOrder != 0 || !got.Sorted {
		t.Errorf("sorted, it differs from the exact guard (-exact +replay):\n%s", diff)
	}
	t.Logf("%+v", exact.guardCounts)
}

// TestLoginSkips checks that attempts on which the guard cannot decide are counted, and that the
// guard decides on all others.
func TestLoginSkips(t *testing.T) {
	at := time.Date(2025, time.March, 4, 5, 6, 7, 0, time.UTC)
	var log strings.Builder
	for _, l := range []sshdLogin{{at, "192.0.2.1", "", false, 3}, {at, "0.0.0.0", "root", false, 1}, {at, "host.example.org", "root", false, 1}, {at, "::ffff:192.0.2.1", "root", false, 1}} {
		log.WriteString(l.String() + "\n")
	}
	file := write(t, log.String())
	got := guarded(t, file)
	if got.NoAccount != 3 || got.NoAddress != 1 || got.Allowed != 1 || got.Denied != 0 || got.Addresses.Count != 1 || got.Unreadable != 1 {
		t.Errorf("%+v", got)
	}
	stdout, _, _ := command(t.Context(), "replay", "--login", file)
	for _, want := range []string{"skipped   3 without an account, 1 without an address\nchecked   1 (100.0 %)\n", `the attempt comes from "host.example.org", which is not an address`} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	none := write(t, sshdLogin{at, "192.0.2.1", "", false, 1}.String())
	if stdout, _, status := command(t.Context(), "replay", "--login", none); status != 0 || !strings.Contains(stdout, "checked   0 (0.0 %)\n") {
		t.Errorf("nothing but such: status %d, %s", status, stdout)
	}
}
