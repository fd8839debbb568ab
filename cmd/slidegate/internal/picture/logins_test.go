package picture

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/sheet"
	"github.com/slidegate/slidegate/internal/look"
	"github.com/slidegate/slidegate/internal/look/looktest"
)

// allowed is the outcome of an attempt that no budget denies. Other outcomes are the index of the
// budget that denies it.
const allowed = -1

// loginsOf returns a replay with an attempt a minute for each outcome.
func loginsOf(outcomes ...int) Logins {
	l := Logins{
		Title: "a title", Zone: "UTC", Timeline: NewTimeline(4), Waits: &Waits{},
		Budgets: []Budget{{Name: "address", Limits: "20/1m"}, {Name: "pair", Limits: "5/1m, 10/1h"}, {Name: "account", Limits: "10/10m"}},
	}
	for i, budget := range outcomes {
		outcome := make([]bool, 4)
		outcome[1+budget] = true
		l.Timeline.Add(time.Unix(noon+int64(i)*60, 0), outcome)
		if budget != allowed {
			l.Budgets[budget].Denied++
			l.Waits.Add(time.Minute)
		}
	}
	return l
}

// renderLogins draws a picture twice. It checks that both are the same, and that all of it is
// legible.
func renderLogins(t *testing.T, l Logins) rendered {
	t.Helper()
	var first, second bytes.Buffer
	if err := errors.Join(DrawLogins(&first, sheet.SVG, l), DrawLogins(&second, sheet.SVG, l)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Fatal("two pictures of the same differ")
	}
	return rendered{looktest.Check(t, first.Bytes())}
}

// TestDrawLogins checks that exactly the budgets with denials have a panel.
func TestDrawLogins(t *testing.T) {
	for name, tt := range map[string]struct {
		outcomes    []int
		texts, none []string
	}{
		"two budgets deny": {
			[]int{allowed, 1, 1, 2, allowed},
			[]string{
				"attempts (5)", "allowed (2)", "denied (3)", "Attempts per second", "UTC",
				"Denied by pair", "2 denied, limits 5/1m, 10/1h", "Denied by account", "1 denied, limits 10/10m", "Waits of the denied",
			},
			[]string{"Denied by address"},
		},
		"all deny": {
			slices.Concat(slices.Repeat([]int{allowed}, 500), slices.Repeat([]int{0, 1, 2}, 5000)),
			[]string{"attempts (15,500)", "denied (15,000)", "Attempts per hour", "5,000 denied, limits 20/1m", "Denied by pair", "Denied by account"},
			nil,
		},
		"none denies": {[]int{allowed, allowed}, []string{"allowed (2)", "No attempt is denied."}, []string{"Denied by pair"}},
		"no attempts": {nil, []string{"attempts (0)", "There are no attempts.", "No attempt is denied."}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := renderLogins(t, loginsOf(tt.outcomes...))
			for _, want := range tt.texts {
				d.Find(t, want)
			}
			for _, unwanted := range tt.none {
				if slices.Contains(d.All(), unwanted) {
					t.Errorf("%q is in it", unwanted)
				}
			}
		})
	}
}

// TestLoginLegend checks that allowed and denied attempts have their own colours.
func TestLoginLegend(t *testing.T) {
	d := renderLogins(t, loginsOf(allowed, 1))
	d.Legend(t, "attempts (2)", look.Shade)
	d.Legend(t, "allowed (1)", look.Blue)
	d.Legend(t, "denied (1)", look.Vermilion)
}

// TestLoginPlaces checks that a denial is drawn at its attempt, in the panel of its budget and with
// the scales of the first panel.
func TestLoginPlaces(t *testing.T) {
	d := renderLogins(t, loginsOf(0, 2))
	attempts := d.bars(look.Shade)[1:] // without the legend
	denials := d.bars(look.Vermilion)[1:]
	if len(attempts) != 3 || len(denials) != 3 {
		t.Fatalf("%d areas of attempts, and %d of denials and waits", len(attempts), len(denials))
	}
	for i := range 2 { // each panel has all attempts, and then one denial
		all, denial := attempts[1+i].Corners(), denials[i].Corners()
		if first := attempts[0].Corners(); all[0][0] != first[0][0] || all[0][1] == first[0][1] {
			t.Errorf("panel %d: attempts from %v, in the first panel from %v", i, all[0], first[0])
		}
		if !slices.Contains(all, denial[1]) || i == 0 && denial[1] != all[1] || i == 1 && denial[1] == all[1] {
			t.Errorf("panel %d: a denial at %v among attempts at %v", i, denial, all)
		}
	}
}

// TestLoginDegenerate checks that unusual titles, limits and outcomes stay legible.
func TestLoginDegenerate(t *testing.T) {
	l := loginsOf(0, 1, 2)
	l.Title, l.Budgets[0].Limits = "a\xffb\x00c\u2028", string(bytes.Repeat([]byte("20/1m, "), 100))
	renderLogins(t, l)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		outcomes := make([]int, 1+r.IntN(1000))
		for i := range outcomes {
			outcomes[i] = r.IntN(4) - 1
		}
		renderLogins(t, loginsOf(outcomes...))
	}
}
