package login_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/slidegate/slidegate/login"
)

// May somebody try a password on this account, from this IP address? Begin charges the attempt
// before the password is checked.
func ExampleGuard_Begin() {
	ctx, ip := context.Background(), netip.MustParseAddr("198.51.100.7")
	guard, err := login.NewLocal(login.Config{Name: "login"}) // or login.New, with a client of Redis and a Secret
	if err != nil {
		panic(err)
	}
	for _, password := range []string{"123456", "letmein", "correct horse", "a", "b", "c", "d", "e", "correct horse"} {
		a, err := guard.Begin(ctx, "alice", ip)
		switch {
		case err != nil: // Redis is down, and there is no Fallback: let nobody in
			fmt.Println("not decided:", err)
		case !a.Allowed: // do not check the password
			fmt.Println("denied; retry after", a.RetryAfter.Round(time.Minute))
		case password == "correct horse": // compare with a password hash instead
			fmt.Println("welcome", a.Succeed(ctx))
		default: // the failure stays charged
			fmt.Println("wrong password;", a.Left, "left")
		}
	}
	// Output:
	// wrong password; 4 left
	// wrong password; 3 left
	// welcome <nil>
	// wrong password; 4 left
	// wrong password; 3 left
	// wrong password; 2 left
	// wrong password; 1 left
	// wrong password; 0 left
	// denied; retry after 1m0s
}
