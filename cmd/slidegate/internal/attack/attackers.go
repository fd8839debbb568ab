package attack

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/slidegate/slidegate/login"
)

// An attacker tries passwords that are all wrong, on its accounts in turn, from its lines in turn. It gets the most that its lines give: who is denied for
// an address goes on with the next one, who is denied for an account with the next account, and if none is left it is back in the second in which
// RetryAfter ends. A line that the alarm stops is back within 8 h, to see whether it is over.
type attacker struct {
	*world
	*rand.Rand
	lines    turns
	accounts turns
	every    time.Duration // between two passwords on a line
	solves   bool          // challenges, at once and as many as help
	device   string        // the stolen cookie of one, or empty
	fresh    bool          // each guess comes from a new address
	cunning  bool          // it does nothing while the alarm is on, and knows when it is over

	tried     [hours]int // passwords, in each hour
	denied    int
	solutions int
}

// A resource is a line, or an account: of no use before a time.
type resource struct {
	client client
	free   time.Duration
	turn   int // the number of its last one

	tried  int // passwords in all
	hourly int // in the hour that is the last of them,
	hour   int // which is this
	worst  int // in any hour
}

// turns are resources that take turns: first is the one that is of use first, and of several, the one whose last turn is longest ago. It implements
// heap.Interface.
type turns struct {
	all    []*resource
	number int
}

func (t *turns) Len() int      { return len(t.all) }
func (t *turns) Swap(i, j int) { t.all[i], t.all[j] = t.all[j], t.all[i] }

// Push implements heap.Interface.
func (t *turns) Push(x any) { t.all = append(t.all, x.(*resource)) }

// Pop implements heap.Interface, and is not called.
func (t *turns) Pop() any { panic("nobody leaves") }

func (t *turns) Less(i, j int) bool {
	a, b := t.all[i], t.all[j]
	return cmp.Or(cmp.Compare(a.free, b.free), cmp.Compare(a.turn, b.turn)) < 0
}

func (t *turns) first() *resource { return t.all[0] }

// used gives the first its next turn when it is free again.
func (t *turns) used(free time.Duration) {
	t.number++
	t.first().free, t.first().turn = free, t.number
	heap.Fix(t, 0)
}

func (t *turns) add(r resource) {
	t.number++
	r.turn = t.number
	heap.Push(t, &r)
}

// act tries the passwords of a second, and comes back in the next one, or when a line and an account are of use again.
func (a *attacker) act() {
	pause := time.Second
	for range a.aSecond() {
		if a.cunning && a.guard.Alarm().On {
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

// aSecond is how many passwords all lines try in a second, at most.
func (a *attacker) aSecond() int { return 1 + int(time.Duration(a.lines.Len())*time.Second/a.every) }

func (a *attacker) guess(line, account *resource) {
	if a.fresh {
		line.client.address = line.client.address.Next()
	}
	attempt := a.ask(client{account: account.client.account, address: line.client.address, device: a.device})
	if attempt.Allowed {
		hour := int(a.now / time.Hour)
		a.tried[hour]++
		account.count(hour)
		a.lines.used(a.now + a.every)
		a.accounts.used(a.now)
		return
	}
	a.denied++
	again := a.now + attempt.RetryAfter
	if a.device != "" {
		again = min(again, a.now+time.Minute) // each login of the owner clears the device's budget
	}
	switch attempt.Denied {
	case login.Account, login.Streak, login.ChallengedAccount, login.ChallengedStreak:
		a.accounts.used(again)
	case login.Site:
		a.lines.used(min(again, a.now+time.Duration(1+a.IntN(8*60))*time.Minute)) // the alarm may be over by then
	default:
		a.lines.used(again)
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
	a := &attacker{world: w, Rand: rand.New(rand.NewPCG(0, 0)), every: every}
	for i := range lines {
		a.lines.add(resource{client: client{address: from(i)}})
	}
	for _, u := range on {
		a.accounts.add(resource{client: client{account: u.account}})
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

// freshBotnet is a botnet with a new address for each guess. Each line has 4,096 of them, one after the other.
func (w *world) freshBotnet(on ...*user) *attacker {
	a := w.attack(4*time.Minute, func(line int) netip.Addr {
		return netip.AddrFrom4([4]byte{byte(16 + line>>12), byte(line >> 4), byte(line << 4), 0})
	}, 10_000, on...)
	a.fresh = true
	return a
}

// lurking has an attacker wait for the end of each alarm.
func (a *attacker) lurking() *attacker {
	a.cunning = true
	return a
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
// which is 96 a day of 100. It leaves one account out, so that its addresses do not meet the same accounts each time. Where there is
// no guard it has no need to be slow: it tries as many as the form can check.
func (w *world) patient() *attacker {
	every := 15 * time.Minute
	if w.guard == nil {
		every = 2400 * time.Millisecond
	}
	return w.attack(every, func(line int) netip.Addr {
		return netip.AddrFrom4([4]byte{203, 0, 113, byte(line)})
	}, 100, w.users[1:]...)
}
