package login_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/slidegate/slidegate/login"
)

// Is a password attempt on this account allowed from this IP address? Begin charges the attempt
// before the password is checked.
func ExampleGuard_Begin() {
	ctx, ip := context.Background(), netip.MustParseAddr("198.51.100.7")
	guard, err := login.NewLocal(login.Config{Name: "login"}) // or login.New, with a connection to Redis and a Secret
	if err != nil {
		panic(err)
	}
	for _, password := range []string{"123456", "letmein", "correct horse", "a", "b", "c", "d", "e", "correct horse"} {
		a, err := guard.Begin(ctx, "alice", ip)
		switch {
		case err != nil: // Redis is down and there is no Fallback: let nobody in
			fmt.Println("not decided:", err)
		case !a.Allowed: // do not check the password
			fmt.Println("denied; retry after", a.RetryAfter.Round(time.Minute))
		case password == "correct horse": // compare with a password hash instead
			fmt.Println("welcome", a.Succeed(ctx))
		default: // the failure stays charged
			fmt.Println("wrong password;", a.Remaining, "left")
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

// How does a captcha let a user in while a botnet guesses at the account? Attempt.Challenge reports
// that a solved challenge would help, and BeginChallenged then allows the attempt.
func ExampleGuard_BeginChallenged() {
	ctx := context.Background()
	guard, err := login.NewLocal(login.Config{Name: "login", Challenged: &login.Challenged{}})
	if err != nil {
		panic(err)
	}
	for i := range 50 { // the botnet
		_, _ = guard.Begin(ctx, "alice", netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
	}
	ip := netip.MustParseAddr("198.51.100.7")
	a, err := guard.Begin(ctx, "alice", ip)
	if err == nil && a.Challenge { // show the captcha; the client solves it
		fmt.Println("denied by the", a.DeniedBy)
		a, err = guard.BeginChallenged(ctx, "alice", ip)
	}
	if err == nil && a.Allowed { // the password is right
		fmt.Println("welcome", a.Succeed(ctx))
	}
	// Output:
	// denied by the account
	// welcome <nil>
}
