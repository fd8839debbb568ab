package mostdenied_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/slidegate/slidegate/mostdenied"
	"github.com/slidegate/slidegate/window"
)

// Who is limited? One line in each limiter's configuration counts its denials. Serve the handler
// where only operators have access.
func Example() {
	denied := mostdenied.New()
	limiter, err := window.NewLocal(window.Config{Name: "api", Limits: []window.Limit{window.PerHour(2)}, OnDenied: denied.Count})
	if err != nil {
		panic(err)
	}
	operators := http.NewServeMux()
	operators.Handle("GET /denied", denied) // use a separate address, such as 127.0.0.1:8001

	for range 5 {
		_, _ = limiter.Allow(context.Background(), "198.51.100.7")
	}
	for _, e := range denied.Report().Most {
		fmt.Printf("%s: %s was denied %d times by %s\n", e.Limiter, e.Event, e.Denied, e.Limit)
	}
	// Output: api: 198.51.100.7 was denied 3 times by 2/1h
}
