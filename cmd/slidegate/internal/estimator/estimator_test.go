package estimator

import (
	"testing"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// TestMemory checks that a level is at rest after the time that Memory returns, and that this time
// is no more than twice as long as necessary.
func TestMemory(t *testing.T) {
	for _, text := range []string{"1/5s", "20/1d", "1000000/1h", "5/3650d"} {
		limit, err := window.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		limit.Resolution = 0
		l, err := ar1.NewLocal(ar1.Config{Name: "x", Limits: []window.Limit{limit}})
		if err != nil {
			t.Fatal(err)
		}
		d, err := l.AllowN(t.Context(), "e", limit.Max)
		if said := AR1.Memory(limit); err != nil || d.Usage[0].ResetAfter > said || said > 2*d.Usage[0].ResetAfter {
			t.Errorf("%s: %v said, %+v %v", text, said, d, err)
		}
	}
}
