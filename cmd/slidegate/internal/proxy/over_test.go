package proxy

import (
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/mostdenied"
	"github.com/slidegate/slidegate/window"
)

// deny counts a denial under the given limit now.
func (p *Proxy) deny(event, limit string, retryAfter time.Duration) {
	d := window.Denial{Limiter: "proxy", Event: event, Limit: must(window.ParseLimit(limit)), Decision: window.Decision{RetryAfter: retryAfter, At: time.Now()}}
	p.denied.Count(context.Background(), d)
}

// TestPage checks that docs/proxy.md shows /over in the form that the program prints.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Proxy{denied: mostdenied.New()}
		<-time.After(time.Until(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)))
		for i := range 3600 {
			if p.deny("/ 198.51.100.7", "5/1h", time.Hour); i >= 3598 {
				p.deny("POST /login 192.0.2.31", "1/5s", 4*time.Second)
			}
			<-time.After(time.Second)
		}
		page, err := os.ReadFile("../../../../docs/proxy.md")
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		p.serveOver(w, nil)
		if shown := w.Body.String(); !strings.Contains(string(page), "```json\n"+shown+"```") {
			t.Errorf("the page does not show\n%s", shown)
		}
	})
}
