// Command attack simulates a week of a login form under attack: without the login guard, with it,
// and with challenges and their alarm. It prints the results as Markdown. docs/login-simulation.md
// explains the figures. The same seed always gives the same week.
//
//	go run ./bench/attack
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/slidegate/slidegate/cmd/slidegate/charts"
	"github.com/slidegate/slidegate/window"
)

func main() {
	seed := flag.Uint64("seed", 1, "the seed of all random choices of users")
	var alarm window.Limit
	flag.Func("alarm", "failures across the whole service at which the alarm switches on, such as 10000000/1h for never (default 1000/1h)", func(text string) (err error) {
		alarm, err = window.ParseLimit(text)
		return err
	})
	picture := flag.String("picture", "", "also draw a chart of the passwords tried into this `file` (.svg)")
	flag.Parse()
	if err := run(*seed, alarm, *picture); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

// run simulates all scenarios, prints their tables and draws the chart.
func run(seed uint64, alarm window.Limit, picture string) error {
	if err := charts.Check(picture); err != nil {
		return err
	}
	weeks, err := simulate(seed, alarm)
	if err != nil {
		return err
	}
	_, err = os.Stdout.WriteString(tables(weeks))
	return errors.Join(err, charts.Save(picture, chart(weeks).draw))
}

// scenario is a kind of attack.
type scenario struct {
	name    string
	attacks func(*world) []*attacker
	solvers bool // the attackers solve challenges
	only    bool // it is simulated only with challenges
}

var scenarios = []scenario{
	{name: "nobody attacks", attacks: func(*world) []*attacker { return nil }},
	{name: "one address, all accounts", attacks: func(w *world) []*attacker { return []*attacker{w.oneAddress(abroad)} }},
	{name: "botnet, one account", attacks: func(w *world) []*attacker { return []*attacker{w.botnet(w.users[owner])} }},
	{name: "patient, 100 addresses, all accounts", attacks: func(w *world) []*attacker { return []*attacker{w.patient()} }},
	{name: "all three at once", attacks: func(w *world) []*attacker {
		return []*attacker{w.oneAddress(abroad), w.botnet(w.users[owner]), w.patient()}
	}},
	{name: "botnet, all accounts", attacks: func(w *world) []*attacker { return []*attacker{w.botnet(w.users...)} }},
	{name: "botnet, all accounts, a new address each time", only: true, attacks: func(w *world) []*attacker { return []*attacker{w.freshBotnet(w.users...)} }},
	{name: "botnet, all accounts, silent during an alarm", only: true, attacks: func(w *world) []*attacker { return []*attacker{w.botnet(w.users...).pausing()} }},
	{name: "one address, that of the office", attacks: func(w *world) []*attacker { return []*attacker{w.oneAddress(office)} }},
	{name: "stolen cookie, one account", attacks: func(w *world) []*attacker { return []*attacker{w.thief(w.users[owner])} }},
	{name: "botnet with solvers, one account", solvers: true, only: true, attacks: func(w *world) []*attacker {
		return []*attacker{w.botnet(w.users[owner]).solving()}
	}},
	{name: "botnet with solvers, all accounts", solvers: true, only: true, attacks: func(w *world) []*attacker {
		return []*attacker{w.botnet(w.users...).solving()}
	}},
}

// week holds the results of a scenario for each kind of form. Some scenarios have only the field
// challenged.
type week struct {
	scenario
	without, with, challenged *world
}

// simulate runs all scenarios with the same users. The alarm switches on at the given rate of
// failures, or at its default if alarm is zero.
func simulate(seed uint64, alarm window.Limit) (weeks []week, err error) {
	for _, s := range scenarios {
		var runs [forms]*world
		for f := range forms {
			if s.only && f != solvable {
				continue
			}
			if runs[f], err = s.run(seed, f, alarm); err != nil {
				return nil, err
			}
		}
		weeks = append(weeks, week{s, runs[unguarded], runs[waiting], runs[solvable]})
	}
	return weeks, nil
}

func (s scenario) run(seed uint64, f form, alarm window.Limit) (*world, error) {
	w, err := newWorld(f, alarm)
	if err != nil {
		return nil, err
	}
	w.addUsers(seed)
	w.attackers = s.attacks(w)
	for _, a := range w.attackers {
		w.after(0, a.act)
	}
	err = w.run()
	if f == unguarded {
		w.repeat()
	}
	return w, err
}
