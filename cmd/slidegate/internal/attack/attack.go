// Package attack simulates a week of a login form under attack: without the login guard, with it,
// and with challenges and their alarm. docs/login-simulation.md explains the figures.
package attack

import (
	"io"
	"os"

	"github.com/slidegate/slidegate/window"
)

// Simulate runs all scenarios and writes their tables, as Markdown. If svg names a file, it also
// draws a chart of the passwords tried. The same seed gives the same week. The alarm goes on at the
// rate site, or at its default if site is zero.
func Simulate(w io.Writer, seed uint64, site window.Limit, svg string) error {
	weeks, err := simulate(seed, site)
	if err != nil {
		return err
	}
	if _, err = io.WriteString(w, tables(weeks)); err != nil || svg == "" {
		return err
	}
	file, err := os.Create(svg)
	if err != nil {
		return err
	}
	if err = picture(file, weeks); err != nil {
		return err
	}
	return file.Close()
}

// A scenario is a kind of attack.
type scenario struct {
	name    string
	attacks func(*world) []*attacker
	solvers bool // the attackers solve challenges
	only    bool // simulated with challenges only
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
	{name: "botnet with solvers, one account", solvers: true, only: true, attacks: func(w *world) []*attacker { return []*attacker{w.botnet(w.users[owner]).solving()} }},
	{name: "botnet with solvers, all accounts", solvers: true, only: true, attacks: func(w *world) []*attacker { return []*attacker{w.botnet(w.users...).solving()} }},
}

// A week has the results of a scenario with each kind of form. Some scenarios have only challenged.
type week struct {
	scenario
	without, with, challenged *world
}

// simulate runs all scenarios, with the same users.
func simulate(seed uint64, site window.Limit) (weeks []week, err error) {
	for _, s := range scenarios {
		var runs [forms]*world
		for f := range forms {
			if s.only && f != solvable {
				continue
			}
			if runs[f], err = s.run(seed, f, site); err != nil {
				return nil, err
			}
		}
		weeks = append(weeks, week{s, runs[unguarded], runs[waiting], runs[solvable]})
	}
	return weeks, nil
}

func (s scenario) run(seed uint64, f form, site window.Limit) (*world, error) {
	w, err := newWorld(f, site)
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
