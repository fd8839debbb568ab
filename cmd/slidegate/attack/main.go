// Command attack simulates a week of a login form under attack, without the guard and with it, and prints what came of it as Markdown.
// docs/login.md explains the figures. The same seed gives the same week.
//
//	go run ./cmd/slidegate/attack
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	seed := flag.Uint64("seed", 1, "what users do by chance follows from it")
	svg := flag.String("svg", "", "also draw the passwords tried into this `file`")
	flag.Parse()
	if err := run(os.Stdout, *seed, *svg); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, seed uint64, svg string) error {
	weeks, err := simulate(seed)
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
}

var scenarios = []scenario{
	{"nobody attacks", func(*world) []*attacker { return nil }},
	{"one address, all accounts", func(w *world) []*attacker { return []*attacker{w.oneAddress(abroad)} }},
	{"botnet, one account", func(w *world) []*attacker { return []*attacker{w.botnet(w.users[owner])} }},
	{"patient, 100 addresses, all accounts", func(w *world) []*attacker { return []*attacker{w.patient()} }},
	{"all three at once", func(w *world) []*attacker {
		return []*attacker{w.oneAddress(abroad), w.botnet(w.users[owner]), w.patient()}
	}},
	{"botnet, all accounts", func(w *world) []*attacker { return []*attacker{w.botnet(w.users...)} }},
	{"one address, that of the office", func(w *world) []*attacker { return []*attacker{w.oneAddress(office)} }},
}

// A week is a scenario twice.
type week struct {
	scenario
	without, with *world
}

// simulate runs all scenarios, on the same users.
func simulate(seed uint64) (weeks []week, err error) {
	for _, s := range scenarios {
		k := week{scenario: s}
		if k.without, err = s.run(seed, false); err != nil {
			return nil, err
		}
		if k.with, err = s.run(seed, true); err != nil {
			return nil, err
		}
		weeks = append(weeks, k)
	}
	return weeks, nil
}

func (s scenario) run(seed uint64, guarded bool) (*world, error) {
	w, err := newWorld(guarded)
	if err != nil {
		return nil, err
	}
	w.settle(seed)
	w.attackers = s.attacks(w)
	for _, a := range w.attackers {
		w.after(0, a.act)
	}
	return w, w.run()
}
