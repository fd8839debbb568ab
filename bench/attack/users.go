package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"
)

const (
	population = 1000 // the number of users, each with an account
	inOffice   = 100  // users behind one shared address
	onIPv6     = 300  // users with an IPv6 /64 of their own
	aDay       = 3    // logins per user: one between 8 and 9, the others later
	ofOwner    = 24   // logins per day of the owner of the account that the botnet attacks: more than other users, for the statistics

	fromKnown = 0.5  // share of logins from known devices
	mistyped  = 0.08 // share of passwords mistyped by users who know theirs
	forgotten = 0.02 // share of logins by users who are unsure of their password
	recalled  = 0.25 // share of correct passwords typed by such users

	checking = 100 * time.Millisecond // from Begin to the answer
	patience = time.Hour              // users who would have to wait longer in total give up
)

const phone = "phone" // the known device of every user

var office, abroad = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")

// group classifies logins by how an attack may affect them.
type group int

const (
	own          group = iota // from an unknown device, at an address of its own
	shared                    // from an unknown device at the office
	known                     // from a known device
	ownerUnknown              // by the owner of the account that the botnet attacks, from an unknown device
	ownerKnown                // by the same owner, from a known device
	groups
)

// tally counts the outcomes of a group's logins.
type tally struct {
	logins int
	waits  []time.Duration // of users who had to wait but got in later
	gaveUp int
	solved int // users who solved at least one challenge
}

// user has its own random source, so that it acts in the same way in every run, as far as the guard
// allows.
type user struct {
	*rand.Rand
	*world
	number  int
	account string
}

// owner is the number of the user whose account the botnet attacks.
const owner = population - 1

// addUsers creates the users and plans their week.
func (w *world) addUsers(seed uint64) {
	for i := range population {
		u := &user{rand.New(rand.NewPCG(seed, uint64(i))), w, i, fmt.Sprintf("user%d", i)}
		w.users = append(w.users, u)
		for begin := time.Duration(0); begin < w.end; begin += day {
			u.plan(begin)
		}
	}
}

func (u *user) plan(begin time.Duration) {
	u.visit(begin + u.between(8*time.Hour, 9*time.Hour))
	logins := aDay
	if u.number == owner {
		logins = ofOwner
	}
	for range logins - 1 {
		u.visit(begin + u.between(9*time.Hour, 22*time.Hour))
	}
}

// between returns a random duration in whole milliseconds, which is the precision of the guard.
func (u *user) between(least, most time.Duration) time.Duration {
	return least + time.Duration(u.Int64N((most-least).Milliseconds()))*time.Millisecond
}

// visit is a login, from its first attempt until it succeeds or the user gives up.
type visit struct {
	*user
	client
	group  group
	sure   bool          // the user is sure of the password
	denied bool          // denied at least once
	asked  bool          // asked at least once to solve a challenge
	waited time.Duration // for denials to end, and for the user to come back
}

func (u *user) visit(at time.Duration) {
	v := &visit{user: u, client: client{account: u.account, address: u.address()}, sure: u.Float64() >= forgotten}
	if u.Float64() < fromKnown {
		v.device = phone
	}
	v.group = v.groupOf()
	u.after(at, v.try)
}

// address returns the user's address. An IPv6 address varies within its /64.
func (u *user) address() netip.Addr {
	high, low := byte(u.number>>8), byte(u.number)
	switch {
	case u.number < inOffice:
		return office
	case u.number < inOffice+onIPv6:
		return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 6: high, 7: low, 15: byte(u.IntN(256))})
	default:
		return netip.AddrFrom4([4]byte{10, 0, high, low})
	}
}

// groupOf returns the group of a login.
func (v *visit) groupOf() group {
	switch isKnown := v.device != ""; {
	case v.number == owner && isKnown:
		return ownerKnown
	case v.number == owner:
		return ownerUnknown
	case isKnown:
		return known
	case v.number < inOffice:
		return shared
	}
	return own
}

// try sends a password, if the guard allows the attempt.
func (v *visit) try() {
	a := v.begin(v.client)
	v.solved = false
	switch {
	case a.Challenge:
		v.asked, v.solved = true, true
		v.after(v.between(5*time.Second, 30*time.Second), v.try)
		return
	case !a.Allowed:
		v.wait(a.RetryAfter + v.between(time.Second, 20*time.Second))
		return
	}
	v.after(checking, func() {
		if v.isRight() {
			v.succeed(a)
			v.end(true)
			return
		}
		v.after(v.between(5*time.Second, 15*time.Second), v.try)
	})
}

// isRight reports whether the user types the correct password this time.
func (v *visit) isRight() bool {
	if v.sure {
		return v.Float64() >= mistyped
	}
	return v.Float64() < recalled
}

// wait makes the user return later or give up.
func (v *visit) wait(pause time.Duration) {
	v.denied = true
	if v.waited += pause; v.waited > patience {
		v.end(false)
		return
	}
	v.after(pause, v.try)
}

func (v *visit) end(in bool) {
	t := &v.tallies[v.group]
	t.logins++
	if v.asked {
		t.solved++
	}
	switch {
	case !in:
		t.gaveUp++
	case v.denied:
		t.waits = append(t.waits, v.waited)
	}
}
