// Command attack simulates a week of a login form under attack: without the login guard, with it,
// and with challenges and their alarm. It prints the results as Markdown. docs/login-simulation.md
// explains the figures. The same seed gives the same week.
//
//	go run ./cmd/slidegate/attack
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/attack"
	"github.com/slidegate/slidegate/window"
)

func main() {
	seed := flag.Uint64("seed", 1, "the seed of all random choices of users")
	var site window.Limit
	flag.Func("site", "failures over the whole service at which the alarm goes on, such as 10000000/1h for never (default 1000/1h)", func(text string) (err error) {
		site, err = window.ParseLimit(text)
		return err
	})
	svg := flag.String("svg", "", "also draw a chart of the passwords tried into this SVG `file`")
	flag.Parse()
	if err := attack.Simulate(os.Stdout, *seed, site, *svg); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}
