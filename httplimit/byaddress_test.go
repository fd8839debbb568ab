package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/httplimit"
)

// TestByAddress checks that all handlers wrapped by the same ByAddress share each client's limits.
func TestByAddress(t *testing.T) {
	byAddress := httplimit.ByAddress(inMemory(nil, "1/1h"), must(httplimit.ClientsBehind(proxies...)), httplimit.FailOpen)
	one, other := byAddress(fine), byAddress(fine)
	for _, of := range []struct {
		handler http.Handler
		client  string
		want    int
	}{{one, "198.51.100.7", 200}, {other, "198.51.100.7", 429}, {other, "203.0.113.1", 200}} {
		w := httptest.NewRecorder()
		of.handler.ServeHTTP(w, from("10.0.0.1:1", of.client))
		if w.Code != of.want {
			t.Errorf("%s: %d, not %d", of.client, w.Code, of.want)
		}
	}
}

// TestByAddressPanics checks that ByAddress panics with the text of the error that New returns.
func TestByAddressPanics(t *testing.T) {
	for want, call := range map[string]func(){
		"slidegate: httplimit has no Limiter":      func() { httplimit.ByAddress(nil, httplimit.Clients{}, httplimit.FailOpen) },
		`slidegate: httplimit has the Outage "up"`: func() { httplimit.ByAddress(inMemory(nil, "1/1h"), httplimit.Clients{}, "up") },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, want) {
					t.Errorf("it panics with %q, not %s", text, want)
				}
			}()
			call()
		}()
	}
}
