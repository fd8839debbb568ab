package main

import (
	"context"
	"net/netip"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/window"
)

// loginName is the name of the row of a login guard.
const loginName = "login"

// beginning returns the decisions of login.Guard.Begin, with the default limits of its five
// budgets.
func beginning(client rueidis.Client) ask {
	guard := must(login.New(window.On(client), login.Config{Name: "login", Secret: []byte("sixteen bytes, or more")}))
	return func(ctx context.Context, event string) (bool, error) {
		a, err := guard.Begin(ctx, "account of "+event, netip.MustParseAddr(event))
		return err == nil && a.Allowed, err
	}
}

// loginRow returns a row of the decisions of a guard, each on an address and an account of its own.
func loginRow(name string, begin ask) contender {
	return contender{
		name: name, like: "login.Guard.Begin of an unknown device: five budgets in one round trip, new events",
		allows: true, merges: true, keys: 5, commands: map[string]int{"evalsha": 5}, ask: begin,
	}
}
