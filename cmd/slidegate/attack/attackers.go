package main

import (
	"net/netip"
	"time"

	"github.com/slidegate/slidegate/login"
)

// An attacker tries passwords that are all wrong, on its accounts in turn, from its lines in turn. It gets the most that its lines give: who is denied for
// an address goes on with the next one, who is denied for an account with the next account, and if none is left it is back in the very millisecond
// in which RetryAfter ends.
type attacker struct {
	*world
	lines    ring
	accounts ring
	every    time.Duration // between two passwords on a line
	solves   bool          // challenges, at once and as many as help
	device   string        // the stolen cookie of one, or empty

	tried     [hours]int // passwords, in each hour
	denied    int
	solutions int
}

// A resource is a line, or an account: of no use before a time.
type resource struct {
	client client
	free   time.Duration

	tried  int // passwords in all
	hourly int // in the hour that is the last of them,
	hour   int // which is this
	worst  int // in any hour
}

// ring is resources that take turns.
type ring struct {
	all  []resource
	next int
}

// turn is whose turn it is of those that are of use now, or if there is none, the first that will be.
func (r *ring) turn(now time.Duration) *resource {
	soonest := &r.all[r.next]
	for range r.all {
		at := &r.all[r.next]
		r.next = (r.next + 1) % len(r.all)
		if at.free <= now {
			return at
		}
		if at.free < soonest.free {
			soonest = at
		}
	}
	return soonest
}

// act tries passwords as long as a line and an account are of use, and comes back when there are again.
func (a *attacker) act() {
	for a.now < length {
		line, account := a.lines.turn(a.now), a.accounts.turn(a.now)
		if pause := max(line.free, account.free) - a.now; pause > 0 {
			a.after(pause, a.act)
			return
		}
		a.guess(line, account)
	}
}

func (a *attacker) guess(line, account *resource) {
	attempt := a.ask(client{account: account.client.account, address: line.client.address, device: a.device})
	line.free = a.now + a.every
	if attempt.Allowed {
		hour := int(a.now / time.Hour)
		a.tried[hour]++
		account.count(hour)
		return
	}
	a.denied++
	again := a.now + attempt.RetryAfter
	if a.device != "" {
		again = min(again, a.now+time.Minute) // each login of the owner clears the device's budget
	}
	switch attempt.Denied {
	case login.Account, login.Streak, login.ChallengedAccount, login.ChallengedStreak:
		line.free, account.free = a.now, again
	default:
		line.free = again
	}
}

// ask asks for an attempt. Where it is denied, an attacker with solvers asks with a solved challenge. If that is denied as well, he is back at the sooner of
// both times.
func (a *attacker) ask(c client) *login.Attempt {
	attempt := a.begin(c)
	if attempt.Allowed || !a.solves {
		return attempt
	}
	c.solved = true
	challenged := a.begin(c)
	if challenged.Allowed {
		a.solutions++
	} else if challenged.RetryAfter >= attempt.RetryAfter {
		return attempt
	}
	return challenged
}

// count counts a password that was tried on an account.
func (r *resource) count(hour int) {
	if r.hour != hour {
		r.hour, r.hourly = hour, 0
	}
	r.tried++
	r.hourly++
	r.worst = max(r.worst, r.hourly)
}

// attack makes an attacker of some accounts.
func (w *world) attack(every time.Duration, from func(line int) netip.Addr, lines int, on ...*user) *attacker {
	a := &attacker{world: w, every: every}
	for i := range lines {
		a.lines.all = append(a.lines.all, resource{client: client{address: from(i)}})
	}
	for _, u := range on {
		a.accounts.all = append(a.accounts.all, resource{client: client{account: u.account}})
	}
	return a
}

// oneAddress tries up to 10 passwords a second on all accounts, such as the most common ones.
func (w *world) oneAddress(from netip.Addr) *attacker {
	return w.attack(time.Second, func(int) netip.Addr { return from }, 10, w.users...)
}

// botnet has 10,000 addresses. All together they try 42 passwords a second, about what a form with four cores can check.
func (w *world) botnet(on ...*user) *attacker {
	return w.attack(4*time.Minute, func(line int) netip.Addr {
		return netip.AddrFrom4([4]byte{172, 16, byte(line >> 8), byte(line)})
	}, 10_000, on...)
}

// solving gives an attacker solvers.
func (a *attacker) solving() *attacker {
	a.solves = true
	return a
}

// thief has the cookie of a user's known device, and one address.
func (w *world) thief(from *user) *attacker {
	a := w.attack(time.Second, func(int) netip.Addr { return abroad }, 1, from)
	a.device = phone
	return a
}

// patient has 100 addresses, and knows the guard: it wants no denial that somebody might see, so it tries a password from each address every 15 minutes,
// which is 96 a day of 100. Where there is no guard it has no need to be slow: it tries as many as the form can check.
func (w *world) patient() *attacker {
	every := 15 * time.Minute
	if w.guard == nil {
		every = 2400 * time.Millisecond
	}
	return w.attack(every, func(line int) netip.Addr {
		return netip.AddrFrom4([4]byte{203, 0, 113, byte(line)})
	}, 100, w.users...)
}
