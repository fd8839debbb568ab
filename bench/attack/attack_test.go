package main

import (
	"errors"
	"flag"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/window"
)

var update = flag.Bool("update", false, "write the tables into docs/login-simulation.md")

// TestMain runs the tests with fewer garbage collections, which would otherwise take a fifth of the
// time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// simulated returns the results for seed 1. All tests check these.
var simulated = sync.OnceValues(func() ([]week, error) { return simulate(1, window.Limit{}) })

func weeks(t *testing.T) map[string]week {
	t.Helper()
	if os.Getenv("SLIDEGATE_LONG") == "" {
		t.Skip("a simulated week of each scenario takes 45 s of CPU: set SLIDEGATE_LONG=1")
	}
	all, err := simulated()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]week{}
	for _, k := range all {
		named[k.name] = k
	}
	return named
}

// TestDocs compares the tables in docs/login-simulation.md with the output of this program. To
// update them: go test ./bench/attack -update.
func TestDocs(t *testing.T) {
	const page = "../../docs/login-simulation.md"
	weeks(t)
	all, _ := simulated()
	if *update {
		rewrite(t, page, tables(all))
	}
	if text := read(t, page); !strings.Contains(text, begin+tables(all)+end) {
		t.Errorf("%s does not show what the program prints; run go test with -update:\n%s", page, tables(all))
	}
}

// TestChart checks that the chart shows what the guard changes.
func TestChart(t *testing.T) {
	weeks(t)
	all, _ := simulated()
	if drawn := chart(all).draw(); !strings.Contains(drawn, ">mean: 150,000 without, 2.1 with<") {
		t.Errorf("drawn %s", drawn)
	}
}

// The marks between which the tables are placed.
const begin, end = "<!-- go run ./bench/attack -->\n\n", "\n<!-- end -->\n"

func rewrite(t *testing.T, page, tables string) {
	t.Helper()
	text := read(t, page)
	before, rest, found := strings.Cut(text, begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatalf("%s has no %q and %q", page, begin, end)
	}
	if err := os.WriteFile(page, []byte(before+begin+tables+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSameSeed checks that the same seed always gives the same week, and another seed a different
// one.
func TestSameSeed(t *testing.T) {
	const guesser = "one address, all accounts"
	row := func(w *world) string { return w.gainCells() + w.costCells() }
	s := weeks(t)[guesser]
	again, err1 := s.run(1, waiting, window.Limit{})
	another, err2 := s.run(2, waiting, window.Limit{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(row(s.with), row(again)); diff != "" {
		t.Errorf("the same seed gives a different week: %s", diff)
	}
	if row(another) == row(s.with) {
		t.Error("a different seed gives the same week")
	}
}

// TestAttackersAreBounded checks that in no hour, and not in the whole week, any attacker tries
// more passwords than the guard's defaults allow.
func TestAttackersAreBounded(t *testing.T) {
	for _, tt := range []struct {
		scenario           string
		hour, week         int // passwords, in total
		accountHour        int // on one account
		account, timesLess int // on one account in the week; how many times fewer in total than without the guard
	}{
		{"one address, all accounts", 50, 8 * 100, 1, 2, 1000},
		{"botnet, one account", 20, 8 * 50, 20, 8 * 50, 10_000},
		{"patient, 100 addresses, all accounts", 50 * 100, 8 * 100 * 100, 2, 7 * 10, 100},
		{"all three at once", 50 + 20 + 50*100, 8*100 + 8*50 + 8*100*100, 20, 8 * 50, 100},
		{"botnet, all accounts", 20 * population, 8 * 50 * population, 20, 8 * 50, 50},
		{"botnet, all accounts, a new address each time", 20 * population, 8 * 50 * population, 20, 8 * 50, 0},
		{"botnet, all accounts, silent during an alarm", 20 * population, 8 * 50 * population, 20, 8 * 50, 0},
		{"one address, that of the office", 50, 8 * 100, 1, 2, 1000},
		{"botnet with solvers, one account", 30, 8 * 70, 30, 8 * 70, 0},
		{"botnet with solvers, all accounts", 30 * population, 8 * 70 * population, 30, 8 * 70, 0},
		{"stolen cookie, one account", 100, 7 * ofOwner * 20, 100, 7 * ofOwner * 20, 100},
	} {
		k := weeks(t)[tt.scenario]
		for _, w := range []*world{k.with, k.challenged} {
			if w == nil {
				continue
			}
			with := w.gains()
			if with.worst > tt.hour || with.total > tt.week || with.hourly > tt.accountHour || with.account > tt.account {
				t.Errorf("%s: tried %+v, more than %+v", tt.scenario, with, tt)
			}
			if !k.only && k.without.gains().total < tt.timesLess*with.total {
				t.Errorf("%s: tried %d without the guard, and %d with it", tt.scenario, k.without.gains().total, with.total)
			}
		}
	}
}

// TestChallengesCostNothing checks that an attacker who cannot solve challenges does not try more
// passwords because there are challenges.
func TestChallengesCostNothing(t *testing.T) {
	all := weeks(t)
	for name, k := range all {
		with := k.with
		if with == nil {
			with = all["botnet, all accounts"].with // without challenges, the results equal those of that scenario
		}
		if challenged := k.challenged.gains().total; !k.solvers && challenged > with.gains().total {
			t.Errorf("%s: tried %d with challenges, and %d without", name, challenged, with.gains().total)
		}
	}
}

// TestAlarm checks that the alarm switches on in attacks on all accounts and in no other week, and
// that it does not flap. It also checks that while the alarm is on, few users have to solve a
// challenge and fewer passwords are tried.
func TestAlarm(t *testing.T) {
	all := weeks(t)
	for name, k := range all {
		if on := strings.Contains(name, "botnet") && strings.Contains(name, "all accounts"); on != (k.challenged.alarmed() > length/5) || !on && len(k.challenged.alarms) > 0 {
			t.Errorf("%s: the alarm was on for %v, and switched %d times", name, k.challenged.alarmed(), len(k.challenged.alarms))
		}
	}
	today := all["botnet, all accounts"].with.gains().total
	for _, name := range []string{"botnet, all accounts", "botnet, all accounts, silent during an alarm"} {
		w := all[name].challenged
		if l := w.tallies[own]; 20*l.solved > l.logins || 10*w.gains().total > 7*today {
			t.Errorf("%s: %d of %d had to solve a challenge; %d passwords were tried, without challenges %d", name, l.solved, l.logins, w.gains().total, today)
		}
	}
	if n := len(all["botnet, all accounts"].challenged.alarms); n > 20 {
		t.Errorf("it switched %d times", n)
	}
}

// TestChallengesLetIn checks that with challenges hardly any user has to wait, unless attackers
// solve challenges too. Without an attack, hardly any user has to solve one.
func TestChallengesLetIn(t *testing.T) {
	for name, k := range weeks(t) {
		for g, tally := range k.challenged.tallies {
			if waited := len(tally.waits) + tally.gaveUp; 100*waited > tally.logins && (!k.solvers || group(g) == known || group(g) == ownerKnown) {
				t.Errorf("%s, %s: %d of %d had to wait, more than 1 %%", name, who[g], waited, tally.logins)
			}
			if name == "nobody attacks" && 100*tally.solved > tally.logins {
				t.Errorf("%s: %d of %d had to solve a challenge", who[g], tally.solved, tally.logins)
			}
		}
	}
}

// TestPatientIsNeverDenied checks that the patient attacker always stays just below the limits.
func TestPatientIsNeverDenied(t *testing.T) {
	if n := weeks(t)["patient, 100 addresses, all accounts"].with.attackers[0].denied; n != 0 {
		t.Errorf("denied %d times", n)
	}
}

// TestHonestUsers checks that users whom an attack does not affect hardly ever wait, and that users
// on known devices never wait because of others.
func TestHonestUsers(t *testing.T) {
	quiet := weeks(t)["nobody attacks"]
	for name, k := range weeks(t) {
		if k.only {
			continue
		}
		unknownHit := name == "botnet, all accounts"
		for g, tally := range k.with.tallies {
			hit := unknownHit || group(g) == shared && name == "one address, that of the office" ||
				group(g) == ownerUnknown && (name == "botnet, one account" || name == "all three at once")
			if group(g) == known || group(g) == ownerKnown || !hit {
				few(t, name+": "+who[g], tally)
			}
		}
		for g, tally := range k.without.tallies {
			if len(tally.waits)+tally.gaveUp > 0 {
				t.Errorf("%s, %s: waited without a guard", name, who[g])
			}
		}
		if k.with.tallies[ownerKnown].gaveUp != quiet.with.tallies[ownerKnown].gaveUp {
			t.Errorf("%s: the known device of the owner was locked out", name)
		}
	}
}

func few(t *testing.T, name string, l tally) {
	t.Helper()
	if waited := len(l.waits) + l.gaveUp; 100*waited > 1*l.logins {
		t.Errorf("%s: %d of %d had to wait, more than 1 %%", name, waited, l.logins)
	}
	if 1000*l.gaveUp > 3*l.logins {
		t.Errorf("%s: %d of %d gave up, more than 0.3 %%", name, l.gaveUp, l.logins)
	}
}
