package login_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/slidegate/slidegate/login"
)

// BenchmarkLocal measures logins on a guard in memory, by a user who has the right password and by
// an attacker who is denied.
func BenchmarkLocal(b *testing.B) {
	now := noon
	for _, succeeds := range []bool{true, false} {
		b.Run(map[bool]string{true: "succeeds", false: "denied"}[succeeds], func(b *testing.B) {
			g := must(login.NewLocal(login.Config{Name: "login", Now: func() time.Time { return now }}))
			accounts := make([]string, 1000)
			for i := range accounts {
				accounts[i] = fmt.Sprint("account ", i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				now = now.Add(time.Millisecond)
				a := must(g.Begin(b.Context(), accounts[i%1000], netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 250)})))
				if succeeds && a.Allowed {
					if err := a.Succeed(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
