package ar1_test

import (
	"strings"
	"testing"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/window"
)

// TestKeysStay checks that keys never change. If a key changed, a service would lose the counts
// under that key when it is updated. The keys were written by hand, and the hashes were computed
// with openssl:
//
//	printf 'x%.0s' $(seq 129) | openssl sha256 -binary | base64
//	printf alice@example.com | openssl sha256 -hmac 'sixteen bytes...' -binary | base64
//
// with - for + and _ for /, as in URLs, and without the = at the end.
func TestKeysStay(t *testing.T) {
	for _, row := range []struct{ event, secret, tag string }{
		{"alice@example.com", "", "alice@example.com"},
		{"203.0.113.7", "", "203.0.113.7"},
		{"Zoë Müller\n", "", "Zo%C3%AB%20M%C3%BCller%0A"},
		{"{a}100%", "", "%7Ba%7D100%25"},
		{"~a~b", "", "%7Ea~b"},
		{strings.Repeat("x", 128), "", strings.Repeat("x", 128)},
		{strings.Repeat("x", 129), "", "~DsnrM-dFELzdHy6lUgboLyFknFwr7L8rQz60dbNMAb0"},
		{"alice@example.com", "sixteen bytes...", "~E5sbboT5EOPlY2KTLb6P713OpaBYl7dwfJQ7hzjurtw"},
	} {
		var secret []byte
		if row.secret != "" {
			secret = []byte(row.secret)
		}
		w := must(window.NewLocal(window.Config{Name: "login", Limits: limits("5/1h"), Secret: secret}))
		if got, want := must(w.Inspect(t.Context(), row.event)).Key, "login:{"+row.tag+"}:w"; got != want {
			t.Errorf("%q: %s, not %s", row.event, got, want)
		}
		a := must(ar1.NewLocal(ar1.Config{Name: "login", Limits: limits("5/1h"), Secret: secret}))
		if got, want := must(a.Inspect(t.Context(), row.event)).Key, "login:{"+row.tag+"}:a"; got != want {
			t.Errorf("%q: %s, not %s", row.event, got, want)
		}
	}
}
