package login_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// TestGuessesUnderLoad sends 64 guesses at once against a budget of 5, for each budget. If both the
// address and the pair have a budget of 5, an attempt that the pair denies can hold a unit of the
// address for a moment. In that case, fewer than 5 passwords may be checked at first, but 5 in
// total.
func TestGuessesUnderLoad(t *testing.T) {
	five, wide := limits("5/1h"), limits("80/1h")
	for name, cfg := range map[string]login.Config{
		"address": {Address: five, Pair: wide}, "pair": {Address: wide, Pair: five}, "address and pair": {Address: five, Pair: five},
		"account": {Address: wide, Pair: wide, Account: five}, "device": {Address: limits("1/1h"), Pair: wide, Device: limits("4/1h")},
		"challenged": {Challenged: &login.Challenged{Account: five}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, redistest.Cluster(t), cfg)
			var checked atomic.Int64
			guess := func(i int) {
				var a *login.Attempt
				switch name {
				case "device":
					a = must(g.BeginKnown(t.Context(), "alice", home, "device"))
				case "challenged":
					a = must(g.BeginChallenged(t.Context(), "alice", bot(i)))
				case "account":
					a = must(g.Begin(t.Context(), "alice", bot(i)))
				default:
					a = must(g.Begin(t.Context(), "alice", home))
				}
				if a.Allowed {
					checked.Add(1)
				}
			}
			var group sync.WaitGroup
			begin := make(chan struct{})
			for i := range 64 {
				group.Go(func() {
					<-begin
					guess(i)
				})
			}
			close(begin)
			group.Wait()
			atOnce := checked.Load()
			for i := range 10 {
				guess(100 + i)
			}
			if n := checked.Load(); n != 5 || atOnce != 5 && name != "address and pair" {
				t.Errorf("%d passwords were checked at once, %d in all", atOnce, n)
			}
		})
	}
}

// TestEndsOnce checks that Succeed and Cancel work although the client has gone, and that only the
// first of them has an effect. TestHistories checks what they give back and reset.
func TestEndsOnce(t *testing.T) {
	g := newGuard(t, redistest.Client(t), login.Config{})
	must(g.Begin(t.Context(), "alice", home))
	a := must(g.Begin(t.Context(), "alice", home))
	err := errors.Join(a.Cancel(canceledContext()), a.Cancel(t.Context()), a.Succeed(t.Context()))
	if err != nil || used(t, g, login.BudgetPair, "192.0.2.1 alice") != 1 {
		t.Errorf("Cancel, Cancel and Succeed: %v", err)
	}
	a = must(g.Begin(t.Context(), "alice", home))
	if err := a.Succeed(canceledContext()); err != nil || used(t, g, login.BudgetPair, "192.0.2.1 alice") != 0 {
		t.Errorf("Succeed: %v", err)
	}
}

// canceledContext returns a context that is already canceled.
func canceledContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestEndAfterDenial checks that Succeed and Cancel change nothing after a denial.
func TestEndAfterDenial(t *testing.T) {
	g := newGuard(t, redistest.Client(t), login.Config{Pair: limits("1/1h")})
	must(g.Begin(t.Context(), "alice", home))
	a := must(g.Begin(t.Context(), "alice", home))
	if a.Allowed || a.DeniedBy != login.BudgetPair || a.RetryAfter <= 59*time.Minute || a.Remaining != 0 || a.Challenge {
		t.Fatalf("%+v", a)
	}
	if err := errors.Join(a.Succeed(t.Context()), a.Cancel(t.Context())); err != nil || used(t, g, login.BudgetPair, "192.0.2.1 alice") != 1 {
		t.Errorf("%v", err)
	}
}

// TestForget checks that Forget unlocks an account that failures from many addresses have locked.
func TestForget(t *testing.T) {
	g := newGuard(t, redistest.Client(t), login.Config{Account: limits("3/1h"), Streak: limits("3/1d")})
	for i := range 5 {
		must(g.Begin(t.Context(), "alice", bot(i)))
		must(g.BeginKnown(t.Context(), "alice", bot(i), fmt.Sprint(i)))
	}
	if a := must(g.Begin(t.Context(), "alice", home)); a.Allowed {
		t.Fatalf("%+v", a)
	}
	if err := g.Forget(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	a := must(g.Begin(t.Context(), "alice", home))
	if total := used(t, g, login.BudgetTotal, "alice"); !a.Allowed || a.Remaining != 2 || total != 1 {
		t.Errorf("%+v, %d in all", a, total)
	}
}

// TestKnownDevice checks that neither a botnet nor failures from the same address lock out the
// owner on a known device.
func TestKnownDevice(t *testing.T) {
	g := newGuard(t, redistest.Client(t), login.Config{})
	for i := range 200 {
		must(g.Begin(t.Context(), "alice", bot(i)))
		must(g.Begin(t.Context(), fmt.Sprint("neighbour ", i), home))
	}
	if a := must(g.Begin(t.Context(), "alice", home)); a.Allowed || a.DeniedBy != login.BudgetAddress {
		t.Errorf("from home, used up by others: %+v", a)
	}
	if a := must(g.Begin(t.Context(), "alice", netip.MustParseAddr("203.0.113.9"))); a.Allowed || a.DeniedBy != login.BudgetAccount {
		t.Errorf("from elsewhere: %+v", a)
	}
	for i := range 7 {
		a := must(g.BeginKnown(t.Context(), "alice", home, "laptop"))
		if a.Allowed != (i < 5) {
			t.Errorf("%d: from a known device: %+v", i, a)
		}
	}
	if a := must(g.BeginKnown(t.Context(), "alice", home, "phone")); !a.Allowed {
		t.Errorf("from another known device: %+v", a)
	}
}

// TestTotalOfADevice checks that if the total denies a known device, RetryAfter is that of the
// total, even if the address is allowed sooner, and that no challenge helps.
func TestTotalOfADevice(t *testing.T) {
	c := newClock()
	g := must(login.NewLocal(login.Config{
		Name: "login", Now: c.now, Address: limits("1/1m"), Account: limits("1/2h"), Total: limits("4/1h"), Challenged: &login.Challenged{Account: limits("1/2h")},
	}))
	for range 4 {
		must(g.BeginKnown(t.Context(), "alice", home, "laptop"))
	}
	must(g.Begin(t.Context(), "bob", home))
	if a := must(g.Begin(t.Context(), "alice", home)); a.DeniedBy != login.BudgetAddress || a.Challenge {
		t.Errorf("from an unknown device: %+v", a)
	}
	for _, wait := range []time.Duration{time.Hour, time.Millisecond} {
		if a := must(g.BeginKnown(t.Context(), "alice", home, "laptop")); a.DeniedBy != login.BudgetTotal || a.RetryAfter != wait || a.Challenge {
			t.Errorf("%+v, want a wait of %v", a, wait)
		}
		c.pass(time.Hour - time.Millisecond)
	}
}

// TestHonestAmongAttackers runs 16 attackers who have used up their own addresses, and who keep
// retrying on an account that has one unit left. An honest user, who gives the unit back each time,
// may be denied in at most 1% of attempts.
func TestHonestAmongAttackers(t *testing.T) {
	g := newGuard(t, redistest.Cluster(t), login.Config{Address: limits("5/1d"), Account: limits("10/1d")})
	for i := range 16 {
		for range 5 { // on accounts of their own
			must(g.Begin(t.Context(), fmt.Sprint("of bot ", i), bot(i)))
		}
	}
	for i := range 9 {
		must(g.Begin(t.Context(), "alice", bot(100+i)))
	}
	ctx, stop := context.WithCancel(t.Context())
	var guesses atomic.Int64
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for ctx.Err() == nil {
				if a, err := g.Begin(ctx, "alice", bot(i)); err == nil && (a.Allowed || a.DeniedBy != login.BudgetAddress) {
					t.Errorf("an attacker: %+v", a)
				}
				guesses.Add(1)
			}
		})
	}
	times := redistest.UnlessShort[int64](500, 100)
	denied := 0
	for range times {
		a := must(g.Begin(t.Context(), "alice", home))
		if !a.Allowed {
			denied++
		}
		if err := a.Succeed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	group.Wait()
	if int64(denied) > times/100 || guesses.Load() < times {
		t.Errorf("%d of %d honest logins were denied, among %d guesses", denied, times, guesses.Load())
	}
	t.Logf("%d of %d honest logins were denied, among %d guesses of 16 attackers", denied, times, guesses.Load())
}

// TestKnownAmongStrangersUnderLoad runs 32 unknown devices that keep retrying from new addresses on
// an account whose budget they have used up. They must take nothing from what is left for known
// devices, not even for a moment.
func TestKnownAmongStrangersUnderLoad(t *testing.T) {
	g := newGuard(t, redistest.Cluster(t), login.Config{Account: limits("2/1d"), Total: limits("3/1h")})
	for i := range 2 {
		must(g.Begin(t.Context(), "alice", bot(i)))
	}
	ctx, stop := context.WithCancel(t.Context())
	var guesses atomic.Int64
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			for ctx.Err() == nil {
				if a, err := g.Begin(ctx, "alice", bot(int(guesses.Add(1)))); err == nil && (a.Allowed || a.DeniedBy != login.BudgetAccount) {
					t.Errorf("a stranger: %+v", a)
				}
			}
		})
	}
	for range redistest.UnlessShort(200, 100) {
		a := must(g.BeginKnown(t.Context(), "alice", home, "laptop"))
		if !a.Allowed {
			t.Errorf("denied by the %s", a.DeniedBy)
		}
		if err := a.Succeed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	group.Wait()
	t.Logf("%d guesses of strangers", guesses.Load())
}

// FuzzNoTwoShareABudget checks that no two accounts or devices share a budget, whatever their
// names.
func FuzzNoTwoShareABudget(f *testing.F) {
	f.Add("alice", "laptop", "bob", "laptop")
	f.Add(`b" c`, "a", "c", `a" b`)
	f.Add("a", "\xff", "a", `\xff`)
	f.Add("a\x00", "b", "a", "\x00b")
	elsewhere := netip.MustParseAddr("2001:db8::1")
	f.Fuzz(func(t *testing.T, account, device, otherAccount, otherDevice string) {
		g := must(login.NewLocal(login.Config{Name: "g", Address: limits("60/1h"), Pair: limits("1/1h"), Account: limits("1/1h"), Device: limits("1/1h")}))
		if account == "" || device == "" || otherAccount == "" || otherDevice == "" {
			t.Skip()
		}
		must(g.Begin(t.Context(), account, home))
		must(g.BeginKnown(t.Context(), account, home, device))
		if a := must(g.Begin(t.Context(), otherAccount, home)); a.Allowed == (account == otherAccount) {
			t.Errorf("%q and %q from one address: %+v", account, otherAccount, a)
		}
		if a := must(g.BeginKnown(t.Context(), otherAccount, elsewhere, otherDevice)); a.Allowed == (account == otherAccount && device == otherDevice) {
			t.Errorf("%q on %q and %q on %q: %+v", account, device, otherAccount, otherDevice, a)
		}
	})
}

// TestKeysHideNames checks that no Redis key contains a readable account, address or device.
func TestKeysHideNames(t *testing.T) {
	client := redistest.Client(t)
	name := redistest.Key(t)
	g := must(login.New(window.On(client), login.Config{Name: name, Secret: secret, Timeout: time.Minute}))
	must(g.Begin(t.Context(), "alice", home))
	must(g.BeginKnown(t.Context(), "alice", home, "laptop"))
	keys := must(client.Do(t.Context(), client.B().Keys().Pattern(name+".*:w").Build()).AsStrSlice())
	if len(keys) != 6 {
		t.Errorf("keys are %q", keys)
	}
	for _, key := range keys {
		if strings.Contains(key, "alice") || strings.Contains(key, "192.0.2.1") || strings.Contains(key, "laptop") {
			t.Errorf("%q", key)
		}
	}
}

// TestRefuses checks the error for each mistake, and that nothing is charged.
func TestRefuses(t *testing.T) {
	client := redistest.Client(t)
	local := must(login.NewLocal(login.Config{Name: "local"}))
	of := func(cfg login.Config) error {
		if cfg.Name == "" {
			cfg.Name = "g"
		}
		_, err := login.New(window.On(client), cfg)
		return err
	}
	_, zero := (*login.Guard)(nil).Begin(t.Context(), "alice", home)
	_, nameless := login.NewLocal(login.Config{})
	_, errLocal := login.NewLocal(login.Config{Name: "g", Fallback: local})
	_, challenged := local.BeginChallenged(t.Context(), "alice", home)
	begin := func(account string, ip netip.Addr) error {
		_, err := local.Begin(t.Context(), account, ip)
		return err
	}
	known := func(account string, ip netip.Addr, device string) error {
		_, err := local.BeginKnown(t.Context(), account, ip, device)
		return err
	}
	account := func(bound string) string {
		return `slidegate: login guard "g" has Account limits that allow ` + bound + `, so that known devices have the rest`
	}
	const ninety = " failures in 1h0m0s, and a Total that allows 100; let Account allow at most 90"
	total := func(bound string) string {
		return `slidegate: login guard "g" has a Total that allows ` + bound + ` failures in an hour; choose at most 100/1h (ASVS 4, 2.2.1)`
	}
	for i, tt := range []struct {
		err  error
		want string
	}{
		{of(login.Config{}), `slidegate: login guard "g" has a Secret of 0 bytes; give it at least 16 random ones, so that Redis keys hide accounts and addresses`},
		{of(login.Config{Secret: secret[:15]}), `slidegate: login guard "g" has a Secret of 15 bytes; give it at least 16 random ones, so that Redis keys hide accounts and addresses`},
		{of(login.Config{Secret: secret, Name: "a b"}), `slidegate: limiter name "a b.address" has the byte " "; use only A-Z a-z 0-9 . _ - and colon`},
		{of(login.Config{Secret: secret, Name: strings.Repeat("a", 46)}), `slidegate: login guard name "` + strings.Repeat("a", 46) + `" has 46 bytes; choose 1 to 45`},
		{zero, "slidegate: this login guard is uninitialized; create it with New or NewLocal"},
		{(&login.Guard{}).Forget(t.Context(), "alice"), "slidegate: this login guard is uninitialized; create it with New or NewLocal"},
		{local.ForgetAddress(t.Context(), netip.Addr{}), login.ErrInvalidAddress.Error()},
		{nameless, `slidegate: login guard without a Name; give it one, because guards with the same Name share their counts`},
		{of(login.Config{Secret: secret, Account: limits("91/1h")}), account("91" + ninety)},
		{of(login.Config{Secret: secret, Account: limits("5/1s")}), account("18000" + ninety)},
		{of(login.Config{Secret: secret, Account: limits("20/10m")}), account("120" + ninety)},
		{of(login.Config{Secret: secret, Account: limits("100/1d")}), account("100" + ninety)},
		{of(login.Config{Secret: secret, Account: limits("46/59m59.999s")}), account("92" + ninety)},
		{of(login.Config{Secret: secret, Account: limits("46/45m")}), account("92" + ninety)},
		{of(login.Config{Secret: secret, Total: limits("10/1h")}), account("20 failures in 1h0m0s, and a Total that allows 10; let Account allow at most 9")},
		{of(login.Config{Secret: secret, Total: limits("100/1h", "11/1m")}), account("10 failures in 1m0s, and a Total that allows 11; let Account allow at most 9")},
		{of(login.Config{Secret: secret, Total: limits("100/1h", "55/1d")}), account("50 failures in 24h0m0s, and a Total that allows 55; let Account allow at most 49")},
		{of(login.Config{Secret: secret, Total: limits("101/1h")}), total("101")},
		{of(login.Config{Secret: secret, Account: []window.Limit{{Max: 5}}}), `slidegate: limiter "g.account" has limit 1 with a Per of 0s; choose whole milliseconds, from one to 100 years`},
		{of(login.Config{Secret: secret, Account: []window.Limit{}}), `slidegate: limiter "g.account" has no limits; give at least one, such as window.PerHour(5)`},
		{of(login.Config{Secret: secret, Account: []window.Limit{{}}}), `slidegate: limiter "g.account" has limit 1 with a Max of 0; choose 1 to 2^53 units`},
		{of(login.Config{Secret: secret, Fallback: &login.Guard{}}), `slidegate: login guard "g" has an uninitialized Fallback; create it with New or NewLocal`},
		{of(login.Config{Secret: secret, Challenged: &login.Challenged{Account: limits("71/1h")}}), `slidegate: login guard "g" has Account limits that allow 20 failures in 1h0m0s, Challenged.Account limits that allow 71, and a Total that allows 100; let both together allow at most 90, so that known devices have the rest`},
		{of(login.Config{Secret: secret, Challenged: &login.Challenged{}, Fallback: local}), `slidegate: login guard "g" has challenges, but its Fallback has none; set Challenged there too`},
		{of(login.Config{Secret: secret, Challenged: &login.Challenged{Site: window.Limit{Per: time.Hour}}}), `slidegate: limiter "g.site" has limit 1 with a Max of 0; choose 1 to 10^7 units`},
		{challenged, `slidegate: login guard without challenges; set Config.Challenged, for example to &login.Challenged{}`},
		{errLocal, `slidegate: limiter "g.address" is in memory and has a Fallback, which it never needs; leave it out`},
		{begin("", home), login.ErrEmptyAccount.Error()},
		{begin("alice", netip.Addr{}), login.ErrInvalidAddress.Error()},
		{begin("alice", netip.IPv6Unspecified()), login.ErrInvalidAddress.Error()},
		{begin("alice", netip.MustParseAddr("0.0.0.0")), login.ErrInvalidAddress.Error()},
		{begin("alice", netip.MustParseAddr("::ffff:0.0.0.0")), login.ErrInvalidAddress.Error()},
		{begin("alice", netip.MustParseAddr("::%eth0")), login.ErrInvalidAddress.Error()},
		{known("", home, "laptop"), login.ErrEmptyAccount.Error()},
		{known("alice", netip.Addr{}, "laptop"), login.ErrInvalidAddress.Error()},
		{known("alice", home, ""), "slidegate: login from a known device without its name; use Begin if the device is not known"},
		{local.Forget(t.Context(), ""), login.ErrEmptyAccount.Error()},
		{local.Forget(t.Context(), "alice", home, netip.Addr{}), login.ErrInvalidAddress.Error()},
	} {
		if tt.err == nil || tt.err.Error() != tt.want {
			t.Errorf("%d: got %v\nwant %s", i, tt.err, tt.want)
		}
	}
	if err := of(login.Config{Secret: secret[:16]}); err != nil {
		t.Error(err)
	}
	if n := used(t, local, login.BudgetAccount, "alice"); n != 0 {
		t.Errorf("%d charges", n)
	}
	for _, valid := range []string{"90/1h", "15/10m", "90/1d", "1/40s", "45/30m1s"} {
		if err := of(login.Config{Secret: secret, Account: limits(valid)}); err != nil {
			t.Error(err)
		}
	}
}

// TestHangingUp checks that a client that hangs up while it is being charged is charged completely,
// including its own address.
func TestHangingUp(t *testing.T) {
	for _, at := range []login.Budget{login.BudgetAddress, login.BudgetPair, login.BudgetAccount, login.BudgetStreak, login.BudgetTotal} {
		ctx, hangUp := context.WithCancel(t.Context())
		var asked atomic.Int64
		g := newGuard(t, redistest.Client(t), login.Config{Observe: func(_ context.Context, o window.Observation) {
			if asked.Add(1); strings.HasSuffix(o.Limiter, "."+string(at)) {
				hangUp()
			}
		}})
		a, err := g.Begin(ctx, "alice", home)
		if err != nil || !a.Allowed || asked.Load() != 5 {
			t.Errorf("%s: %+v, %v, %d asked", at, a, err, asked.Load())
		}
		if a, err := g.Begin(ctx, "alice", home); !errors.Is(err, context.Canceled) || a != nil || asked.Load() != 5 {
			t.Errorf("%s, gone before: %+v, %v, %d asked", at, a, err, asked.Load())
		}
		for b, event := range map[login.Budget]string{login.BudgetAddress: "192.0.2.1", login.BudgetPair: "192.0.2.1 alice", login.BudgetAccount: "alice", login.BudgetStreak: "alice", login.BudgetTotal: "alice"} {
			if n := used(t, g, b, event); n != 1 {
				t.Errorf("%s: %d charged to the %s", at, n, b)
			}
		}
	}
}

// expiredDeadline is a context whose deadline is always one second ago.
type expiredDeadline struct{ context.Context }

func (expiredDeadline) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// TestDeadline checks that a client whose deadline passes while it is being charged is charged
// completely, including its own address.
func TestDeadline(t *testing.T) {
	g := newGuard(t, redistest.Client(t), login.Config{Challenged: &login.Challenged{}})
	for want := range int64(5) {
		if a, err := g.Begin(expiredDeadline{t.Context()}, "alice", home); err != nil || !a.Allowed || used(t, g, login.BudgetAddress, "192.0.2.1") != want+1 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if a, err := g.Begin(expiredDeadline{t.Context()}, "alice", home); err != nil || a.DeniedBy != login.BudgetPair || !a.Challenge {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestTotalHoldsOnChange checks that an account has at most 100 failures in an hour, even if guards
// with the same Name have different limits.
func TestTotalHoldsOnChange(t *testing.T) {
	client, c, name := redistest.Client(t), newClock(), redistest.Key(t)
	checked := 0
	totals := [][]window.Limit{nil, limits("50/30m"), limits("100/1h", "99/59m"), limits("100/1h@30s")}
	for i, account := range []string{"10/1h", "45/1h", "80/61m", "15/10m"} {
		g := must(login.New(window.On(client), login.Config{Name: name, Secret: secret, Account: limits(account), Total: totals[i], Now: c.now, Timeout: time.Minute}))
		for n := range 110 {
			if must(g.Begin(t.Context(), "alice", bot(256*i+n))).Allowed {
				checked++
			}
			if must(g.BeginKnown(t.Context(), "alice", bot(256*i+n), fmt.Sprint(n))).Allowed {
				checked++
			}
		}
	}
	if checked != 100 {
		t.Errorf("%d passwords checked", checked)
	}
}

// TestErrorsOfSucceedAndCancel checks that the error names each budget whose charge could not be
// given back or reset.
func TestErrorsOfSucceedAndCancel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := must(login.New(window.On(server.Client(t)), login.Config{Name: "login", Secret: secret, Timeout: time.Minute}))
	one, other := must(g.Begin(t.Context(), "alice", home)), must(g.BeginKnown(t.Context(), "alice", home, "laptop"))
	server.Kill(t)
	for _, tt := range []struct {
		err  error
		says []login.Budget
	}{
		{one.Succeed(t.Context()), []login.Budget{login.BudgetAddress, login.BudgetPair, login.BudgetAccount, login.BudgetStreak, login.BudgetTotal}},
		{other.Cancel(t.Context()), []login.Budget{login.BudgetDevice, login.BudgetTotal}},
		{g.Forget(t.Context(), "alice", home), []login.Budget{login.BudgetPair, login.BudgetAccount, login.BudgetStreak, login.BudgetTotal}},
	} {
		for _, b := range tt.says {
			if tt.err == nil || !strings.Contains(tt.err.Error(), string(b)) || !errors.Is(tt.err, window.ErrOutage) {
				t.Errorf("%s: %v", b, tt.err)
			}
		}
	}
}

// TestNoPermission checks that if the ACL user may not use the keys of a budget, errors name the
// keys of the whole guard.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	must(server.Do(t.Context(), "ACL", "SETUSER", "guard", "on", ">password", "+@all", "~login.address:*").ToString())
	client := server.NewClient(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "guard", "password" })
	cfg := login.Config{Name: "login", Secret: secret, Timeout: time.Minute}
	g := must(login.New(window.On(client), cfg))
	cfg.Fallback = must(login.NewLocal(login.Config{Name: "fallback"}))
	falls := must(login.New(window.On(client), cfg))
	_, begun := g.Begin(t.Context(), "alice", home)
	_, inspected := g.Inspect(t.Context(), "alice", home)
	a := must(falls.Begin(t.Context(), "alice", home))
	for i, err := range []error{begun, inspected, g.Forget(t.Context(), "alice"), a.Cause, a.Succeed(t.Context())} {
		if !errors.Is(err, window.ErrOutage) || window.ReasonOf(err) != window.ReasonNoPerm || !strings.HasSuffix(err.Error(), "; for all budgets of the guard, give its user ~login.*") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestOutageWithinAnAttempt begins an outage during an attempt, so that the Fallback decides the rest
// of it. A denial must come with an error if charges in Redis cannot be given back.
func TestOutageWithinAnAttempt(t *testing.T) {
	t.Parallel()
	for _, denied := range []bool{false, true} {
		t.Run(strconv.FormatBool(denied), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			refuse := func() {}
			cfg := login.Config{Name: "login", Secret: secret, Timeout: time.Minute, Observe: func(context.Context, window.Observation) { refuse() }}
			cfg.Now = time.Now // so that the budgets are asked part by part
			cfg.Fallback = must(login.NewLocal(login.Config{Name: "fallback", Account: limits("1/1h"), Device: limits("1/1h"), Pair: limits("1/1h")}))
			if denied {
				must(cfg.Fallback.Begin(t.Context(), "alice", home))
			}
			g := must(login.New(window.On(server.Client(t)), cfg))
			must(g.Begin(t.Context(), "carol", home)) // connects, and loads the script
			refuse = sync.OnceFunc(func() { refuseScripts(t, server) })
			a, err := g.Begin(t.Context(), "alice", home)
			if a == nil || a.Allowed == denied || !a.Degraded || a.Cause == nil || denied != errors.Is(err, window.ErrOutage) || denied != (a.DeniedBy == login.BudgetPair || a.DeniedBy == login.BudgetAccount) {
				t.Errorf("%v: %+v, %v", denied, a, err)
			}
			for i := range 3 {
				if a := must(g.BeginKnown(t.Context(), "bob", home, "laptop")); !a.Degraded || a.Allowed != (i < 2) { // once as a known device, once as an unknown one
					t.Errorf("%d, by the Fallback: %+v", i, a)
				}
			}
		})
	}
}

// TestTimeout checks that each round trip gets a fifth of Timeout or, if Timeout is negative, all
// the time until the deadline of the context.
func TestTimeout(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.NewClient(t, func(o *rueidis.ClientOption) { o.ConnWriteTimeout = time.Minute }) // so that rueidis does not time out first
	server.Pause(t)
	defer server.Resume(t)
	for _, of := range []struct {
		timeout time.Duration
		says    string
	}{{0, "200ms"}, {600 * time.Millisecond, "120ms"}, {1, "1ns"}, {-1, "context deadline exceeded"}} {
		g := must(login.New(window.On(client), login.Config{Name: "login", Secret: secret, Timeout: of.timeout}))
		ctx := t.Context()
		if of.timeout < 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
		}
		if a, err := g.Begin(ctx, "alice", home); a != nil || !errors.Is(err, window.ErrUncertain) && !errors.Is(err, window.ErrOutage) || !strings.Contains(err.Error(), of.says) {
			t.Errorf("%v: %+v, %v", of.timeout, a, err)
		}
	}
}

// TestForgetAddress checks that ForgetAddress resets an address that has used up its budget, given
// any address in the same /64.
func TestForgetAddress(t *testing.T) {
	g := newGuard(t, redistest.Client(t), login.Config{Address: limits("1/1h")})
	one, other := netip.MustParseAddr("2001:db8:1:2::1"), netip.MustParseAddr("2001:db8:1:2::2")
	must(g.Begin(t.Context(), "alice", one))
	if a := must(g.Begin(t.Context(), "bob", other)); a.Allowed {
		t.Errorf("%+v", a)
	}
	if err := g.ForgetAddress(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if a := must(g.Begin(t.Context(), "bob", one)); !a.Allowed {
		t.Errorf("%+v", a)
	}
}

// TestKilledUnderLoad kills Redis while guesses come from many addresses, with and without a
// Fallback.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for _, falls := range []bool{true, false} {
		t.Run(strconv.FormatBool(falls), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			cfg := login.Config{Name: "login", Secret: secret, Account: limits("20/1h"), Timeout: time.Minute}
			fallback := must(login.NewLocal(login.Config{Name: "fallback", Account: limits("4/1h")}))
			if falls {
				cfg.Fallback = fallback
			}
			g := must(login.New(window.On(server.Client(t)), cfg))
			var checked, degraded, failed atomic.Int64
			guess := func(i int) {
				a, err := g.Begin(t.Context(), "alice", bot(i))
				if err != nil && !errors.Is(err, window.ErrOutage) && !errors.Is(err, window.ErrUncertain) || err != nil && a != nil && a.Allowed {
					t.Errorf("%+v, %v", a, err)
				}
				switch {
				case a == nil:
					failed.Add(1)
				case a.Allowed:
					checked.Add(1)
				}
				if a != nil && a.Degraded {
					degraded.Add(1)
				}
			}
			for i := range 10 {
				guess(i)
			}
			var group sync.WaitGroup
			var guesses, late atomic.Int64
			dead := make(chan struct{})
			for range 32 {
				group.Go(func() {
					for late.Load() < 100 {
						guess(100 + int(guesses.Add(1)))
						select {
						case <-dead:
							late.Add(1)
						default:
						}
					}
				})
			}
			server.Kill(t)
			close(dead)
			group.Wait()
			most, inMemory := int64(20), used(t, fallback, login.BudgetAccount, "alice")
			if falls {
				most += 4
			}
			if n := checked.Load(); n < 10 || n > most || falls != (inMemory == 4) || falls != (degraded.Load() >= 100) || falls != (failed.Load() == 0) {
				t.Errorf("%d passwords checked, %d charged in memory, %d degraded, %d errors", n, inMemory, degraded.Load(), failed.Load())
			}
		})
	}
}

// TestPage checks that docs/login.md shows the actual defaults.
func TestPage(t *testing.T) {
	page := string(must(os.ReadFile("../docs/login.md")))
	plain, challenges := must(login.NewLocal(login.Config{Name: "g"})), must(login.NewLocal(login.Config{Name: "g", Challenged: &login.Challenged{}}))
	for _, b := range []login.Budget{
		login.BudgetAddress, login.BudgetPair, login.BudgetAccount, login.BudgetStreak, login.BudgetTotal, login.BudgetDevice,
		login.BudgetChallengedAddress, login.BudgetChallengedPair, login.BudgetChallengedAccount, login.BudgetChallengedStreak,
	} {
		g := plain
		if plain.Limiter(b) == nil {
			g = challenges
		}
		var texts []string
		for _, l := range must(g.Limiter(b).Inspect(t.Context(), "e")).Limits {
			texts = append(texts, l.Limit.Label())
		}
		if row := regexp.MustCompile(`(?m)^\| ` + string(b) + ` \|[^|]*\| ` + strings.Join(texts, ", ") + ` \|`); !row.MatchString(page) {
			t.Errorf("docs/login.md has no row %s", row)
		}
	}
	if text := challenges.Alarm().Limit.Label(); !strings.Contains(page, "window.PerHour("+strings.TrimSuffix(text, "/1h")+"), // the default") {
		t.Errorf("docs/login.md does not say that the default of Site is %s", text)
	}
}

// TestAttemptWithoutGuard checks that Succeed and Cancel work on an Attempt that was not created by
// a guard, as in a user's tests.
func TestAttemptWithoutGuard(t *testing.T) {
	a := &login.Attempt{Allowed: true}
	if err := errors.Join(a.Succeed(t.Context()), a.Cancel(t.Context())); err != nil {
		t.Error(err)
	}
}
