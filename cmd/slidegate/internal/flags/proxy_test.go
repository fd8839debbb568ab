package flags

import (
	"net/http"
	"testing"
)

// TestOneValue checks that a request with two values to limit by has no key, because the server
// could use the other value.
func TestOneValue(t *testing.T) {
	for _, tt := range []struct {
		by     string
		header http.Header
		want   string
	}{
		{"header:x-api-key", http.Header{"X-Api-Key": {"a"}}, "header X-Api-Key a"},
		{"header:X-Api-Key", http.Header{"X-Api-Key": {"a", "b"}}, ""},
		{"header:X-Api-Key", http.Header{"X-Api-Key": {"a", ""}}, ""},
		{"cookie:id", http.Header{"Cookie": {"x=y; id=a"}}, "cookie id a"},
		{"cookie:id", http.Header{"Cookie": {"id=a; id=b"}}, ""},
		{"cookie:id", http.Header{"Cookie": {"id=a", "id=a"}}, ""},
	} {
		var w Who
		if err := w.read(tt.by); err != nil {
			t.Fatal(err)
		}
		if got := w.Key(&http.Request{Header: tt.header}); got != tt.want {
			t.Errorf("%s of %v: %q, not %q", tt.by, tt.header, got, tt.want)
		}
	}
}
