package main

import (
	"context"
	"net/netip"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// loginName is the name of the row for a login guard.
const loginName = "login"

// loggingIn calls login.Guard.Begin, with the default limits of its five budgets, followed by
// Attempt.Succeed.
func loggingIn(client rueidis.Client) ask {
	guard := must(login.New(window.On(client), login.Config{Name: "login", Secret: []byte("sixteen bytes, or more"), Timeout: patience}))
	return func(ctx context.Context, event string) (bool, error) {
		a, err := guard.Begin(ctx, "account of "+event, netip.MustParseAddr(event))
		if err != nil {
			return false, err
		}
		return a.Allowed, a.Succeed(ctx)
	}
}

// loginRow returns a row for a login guard. Each decision uses its own address and account.
func loginRow(name string, login ask) contender {
	return contender{
		name: name, like: "login.Guard.Begin of an unknown device and Succeed: five budgets each, in a round trip each, new events",
		allows: true, merges: true, commands: map[string]int{"evalsha": 10}, ask: login,
	}
}
