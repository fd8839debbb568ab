package main

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/flags"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/replay"
)

// BenchmarkMillionLogins replays a log of a million logins with the login guard.
//
//	go test ./cmd/slidegate -run '^$' -bench MillionLogins -benchtime 3x
func BenchmarkMillionLogins(b *testing.B) {
	logs := map[string]func(testing.TB) string{
		"failed":   func(tb testing.TB) string { return millionLines(tb, "syslog") },
		"accepted": func(tb testing.TB) string { return millionLines(tb, "journal") },
		"mixed":    millionLogins,
	}
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		b.Run(name, func(b *testing.B) {
			replayed := &replay.Command{Login: true, Files: []flags.Text{flags.Text(logs[name](b))}}
			for b.Loop() {
				if err := replayed.Run(b.Context(), cli.Streams{In: os.Stdin, Out: io.Discard, Err: io.Discard}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// millionLogins returns a log of users, who mostly have the right password, and three attackers.
func millionLogins(tb testing.TB) string {
	tb.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	at := time.Date(2025, time.March, 4, 5, 6, 7, 0, time.UTC)
	var b strings.Builder
	for range 1_000_000 {
		at = at.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
		l := sshdLogin{at: at, times: 1}
		switch actor := r.IntN(10); {
		case actor < 2: // a botnet
			l.from, l.account = fmt.Sprintf("2001:db8:%x::%x", r.IntN(5000), r.IntN(5)), "root"
		case actor < 4: // a list of names
			l.from, l.account = fmt.Sprintf("203.0.113.%d", r.IntN(100)), fmt.Sprintf("user-%d", r.IntN(9000))
		case actor < 5: // one address that keeps retrying
			l.from, l.account = "198.51.100.7", "admin"
		default: // users
			name := r.IntN(4000)
			l.from, l.account, l.succeeded = fmt.Sprintf("192.0.%d.%d", name>>8, name&255), fmt.Sprintf("name-%d", name), r.IntN(12) > 0
		}
		b.WriteString(l.String() + "\n")
	}
	return write(tb, b.String())
}
