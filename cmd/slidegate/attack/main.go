// Command attack simulates a week of a login form under attack, without the guard, with it, and with challenges and their alarm, and prints what came of it as Markdown.
// docs/login.md explains the figures. The same seed gives the same week.
//
//	go run ./cmd/slidegate/attack
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/slidegate/slidegate/window"
)

func main() {
	seed := flag.Uint64("seed", 1, "what users do by chance follows from it")
	var site window.Limit
	flag.Func("site", "failures over the whole service at which the alarm goes on, such as 10000000/1h for never (default 1000/1h)", func(text string) (err error) {
		site, err = window.ParseLimit(text)
		return err
	})
	svg := flag.String("svg", "", "also draw the passwords tried into this `file`")
	flag.Parse()
	if err := run(os.Stdout, *seed, site, *svg); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, seed uint64, site window.Limit, svg string) error {
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

// A scenario is who attacks.
type scenario struct {
	name    string
	attacks func(*world) []*attacker
	solvers bool // attackers solve challenges
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
	{name: "botnet, all accounts, silent during an alarm", only: true, attacks: func(w *world) []*attacker { return []*attacker{w.botnet(w.users...).lurking()} }},
	{name: "one address, that of the office", attacks: func(w *world) []*attacker { return []*attacker{w.oneAddress(office)} }},
	{name: "stolen cookie, one account", attacks: func(w *world) []*attacker { return []*attacker{w.thief(w.users[owner])} }},
	{name: "botnet with solvers, one account", solvers: true, only: true, attacks: func(w *world) []*attacker { return []*attacker{w.botnet(w.users[owner]).solving()} }},
	{name: "botnet with solvers, all accounts", solvers: true, only: true, attacks: func(w *world) []*attacker { return []*attacker{w.botnet(w.users...).solving()} }},
}

// A week is a scenario under each form. Of some scenarios only challenged is there.
type week struct {
	scenario
	without, with, challenged *world
}

// simulate runs all scenarios, on the same users.
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
	w.settle(seed)
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
