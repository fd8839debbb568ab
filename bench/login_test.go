package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// BenchmarkBegin measures login.Guard.Begin on a network that adds 0.5 ms to each round trip. It
// compares Begin, which takes one round trip, with the same five budgets checked in a round trip
// each. It reports medians.
//
//	go test ./bench -run '^$' -bench Begin -benchtime 1000x
func BenchmarkBegin(b *testing.B) {
	guard := farGuard(b, 500*time.Microsecond)
	home, attempts := netip.MustParseAddr("192.0.2.1"), 0
	var one, five []time.Duration
	for b.Loop() {
		attempts++
		home = home.Next()
		one = append(one, took(b, func() (bool, error) {
			a, err := guard.Begin(b.Context(), fmt.Sprint("one-", attempts), home)
			return err == nil && a.Allowed, err
		}))
		five = append(five, took(b, func() (bool, error) {
			return oneByOne(b.Context(), guard, fmt.Sprint("five-", attempts), home.String()+" five")
		}))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(one).Seconds()*1e3, "ms/one")
	b.ReportMetric(median(five).Seconds()*1e3, "ms/five")
	b.ReportMetric(float64(median(five))/float64(median(one)), "five/one")
}

// farGuard returns a guard whose Redis is behind a network with the given delay.
func farGuard(tb testing.TB, delay time.Duration) *login.Guard {
	tb.Helper()
	env := environment{addr: redistest.Addr(tb), delay: delay}
	tb.Cleanup(env.close)
	via, network, err := env.startDelay()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Log(network)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{via}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	guard, err := login.New(window.On(client), login.Config{Name: redistest.Key(tb), Secret: []byte("sixteen bytes, or more"), Timeout: patience})
	if err != nil {
		tb.Fatal(err)
	}
	return guard
}

// oneByOne checks the budgets of Begin, each in a round trip of its own.
func oneByOne(ctx context.Context, guard *login.Guard, account, address string) (bool, error) {
	for _, c := range []struct {
		budget login.Budget
		event  string
	}{{login.BudgetAddress, address}, {login.BudgetPair, address + account}, {login.BudgetAccount, account}, {login.BudgetStreak, account}, {login.BudgetTotal, account}} {
		if d, err := guard.Limiter(c.budget).Allow(ctx, c.event); err != nil || !d.Allowed {
			return false, err
		}
	}
	return true, nil
}

// took returns how long an attempt took. The attempt must be allowed.
func took(tb testing.TB, attempt func() (bool, error)) time.Duration {
	tb.Helper()
	begin := time.Now()
	if allowed, err := attempt(); err != nil || !allowed {
		tb.Fatalf("allowed: %v, error %v", allowed, err)
	}
	return time.Since(begin)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
