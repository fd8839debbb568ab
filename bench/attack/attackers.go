package main

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/slidegate/slidegate/login"
)

// attacker tries wrong passwords. It rotates through its accounts and through its lines, and makes
// the most of its lines. If an address is denied, it continues with the next address; if an account
// is denied, with the next account. If none is left, it returns in the second in which RetryAfter
// ends. A line that the alarm stops returns within 8 h, to see whether the alarm is over.
type attacker struct {
	*world
	*rand.Rand
	lines    rotation
	accounts rotation
	every    time.Duration // the time between two passwords on the same line
	solves   bool          // it immediately solves every challenge that helps
	device   string        // a known device whose cookie was stolen, or empty
	fresh    bool          // it makes each guess from a new address
	pauses   bool          // it does nothing while the alarm is on, and knows when the alarm is over

	tried     [hours]int // passwords tried in each hour
	denied    int
	solutions int
}

// resource is a line or an account. It cannot be used before a given time.
type resource struct {
	client client
	free   time.Duration
	used   int // the number of its last use

	tried  int // the total number of passwords
	hourly int // the number of passwords in the hour of the last one
	hour   int // the hour of the last password
	worst  int // the most passwords in any hour
}

// rotation holds resources that are used in turn. first is the resource that will be free first.
// Ties go to the resource that has been unused for the longest time.
type rotation struct {
	pile[*resource]

	uses int
}

// Compare orders resources by the time at which they are free.
func (r *resource) Compare(other *resource) int {
	return cmp.Or(cmp.Compare(r.free, other.free), cmp.Compare(r.used, other.used))
}

func (t *rotation) first() *resource { return t.all[0] }

// use takes the first resource out of use until the given time.
func (t *rotation) use(free time.Duration) {
	t.uses++
	t.first().free, t.first().used = free, t.uses
	heap.Fix(t, 0)
}

func (t *rotation) add(r resource) {
	t.uses++
	r.used = t.uses
	heap.Push(t, &r)
}

// act tries the passwords of one second. The attacker acts again in the next second, or when both a
// line and an account are free again.
func (a *attacker) act() {
	pause := time.Second
	for range a.aSecond() {
		if a.pauses && a.guard.Alarm().On {
			pause = time.Minute
			break
		}
		line, account := a.lines.first(), a.accounts.first()
		if free := max(line.free, account.free); free > a.now {
			pause = free - a.now
			break
		}
		a.guess(line, account)
	}
	if a.now+pause < a.end {
		a.after(pause, a.act)
	}
}

// aSecond returns the maximum number of passwords that all lines together can try in a second.
func (a *attacker) aSecond() int { return 1 + int(time.Duration(a.lines.Len())*time.Second/a.every) }

func (a *attacker) guess(line, account *resource) {
	if a.fresh {
		line.client.address = line.client.address.Next()
	}
	attempt := a.begin(client{account: account.client.account, address: line.client.address, device: a.device})
	if attempt.Allowed {
		hour := int(a.now / time.Hour)
		a.tried[hour]++
		account.count(hour)
		a.lines.use(a.now + a.every)
		a.accounts.use(a.now)
		return
	}
	a.denied++
	again := a.now + attempt.RetryAfter
	if a.device != "" {
		again = min(again, a.now+time.Minute) // each login by the owner clears the device's budget
	}
	switch attempt.DeniedBy {
	case login.BudgetAccount, login.BudgetStreak, login.BudgetChallengedAccount, login.BudgetChallengedStreak:
		a.accounts.use(again)
	case login.BudgetSite:
		a.lines.use(min(again, a.now+time.Duration(1+a.IntN(8*60))*time.Minute)) // the alarm may be over by then
	default:
		a.lines.use(again)
	}
}

// begin begins an attempt. If it is denied, an attacker that solves challenges begins another
// attempt, with a solved challenge. If that is denied too, the attacker returns at the earlier of
// the two times.
func (a *attacker) begin(c client) *login.Attempt {
	attempt := a.world.begin(c)
	if attempt.Allowed || !a.solves {
		return attempt
	}
	c.solved = true
	challenged := a.world.begin(c)
	if challenged.Allowed {
		a.solutions++
	} else if challenged.RetryAfter >= attempt.RetryAfter {
		return attempt
	}
	return challenged
}

// count counts a password tried on an account.
func (r *resource) count(hour int) {
	if r.hour != hour {
		r.hour, r.hourly = hour, 0
	}
	r.tried++
	r.hourly++
	r.worst = max(r.worst, r.hourly)
}

// attack creates an attacker of the given accounts.
func (w *world) attack(every time.Duration, from func(line int) netip.Addr, lines int, on ...*user) *attacker {
	a := &attacker{world: w, Rand: rand.New(rand.NewPCG(0, 0)), every: every}
	for i := range lines {
		a.lines.add(resource{client: client{address: from(i)}})
	}
	for _, u := range on {
		a.accounts.add(resource{client: client{account: u.account}})
	}
	return a
}

// oneAddress returns an attacker that tries up to 10 passwords a second, such as the most common
// ones, on all accounts.
func (w *world) oneAddress(from netip.Addr) *attacker {
	return w.attack(time.Second, func(int) netip.Addr { return from }, 10, w.users...)
}

// botnet returns an attacker with 10,000 addresses. Together they try 42 passwords a second, which
// is about what a login form can check with four cores.
func (w *world) botnet(on ...*user) *attacker {
	return w.attack(4*time.Minute, func(line int) netip.Addr {
		return netip.AddrFrom4([4]byte{172, 16, byte(line >> 8), byte(line)})
	}, 10_000, on...)
}

// freshBotnet returns a botnet that makes each guess from a new address. Each line has 4,096
// addresses, which it uses one after another.
func (w *world) freshBotnet(on ...*user) *attacker {
	a := w.attack(4*time.Minute, func(line int) netip.Addr {
		return netip.AddrFrom4([4]byte{byte(16 + line>>12), byte(line >> 4), byte(line << 4), 0})
	}, 10_000, on...)
	a.fresh = true
	return a
}

// pausing makes an attacker pause whenever the alarm is on.
func (a *attacker) pausing() *attacker {
	a.pauses = true
	return a
}

// solving makes an attacker solve challenges, by hand or automatically.
func (a *attacker) solving() *attacker {
	a.solves = true
	return a
}

// thief returns an attacker that has a single address and the cookie of a user's known device.
func (w *world) thief(from *user) *attacker {
	a := w.attack(time.Second, func(int) netip.Addr { return abroad }, 1, from)
	a.device = phone
	return a
}

// patient returns an attacker with 100 addresses that knows the guard and avoids denials, because
// they might be noticed. It tries a password from each address every 15 minutes, which is 96 of the
// 100 allowed per day. It leaves out one account, so that each address does not always meet the
// same accounts. Without a guard, it has no need to be slow, and tries as many passwords as the
// form can check.
func (w *world) patient() *attacker {
	every := 15 * time.Minute
	if w.guard == nil {
		every = 2400 * time.Millisecond
	}
	return w.attack(every, func(line int) netip.Addr {
		return netip.AddrFrom4([4]byte{203, 0, 113, byte(line)})
	}, 100, w.users[1:]...)
}
