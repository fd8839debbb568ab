package flags

import (
	"net/http"
	"testing"
)

// TestWho checks who is limited under each value of --by.
func TestWho(t *testing.T) {
	for _, tt := range []struct {
		by     string
		header http.Header
		want   string
	}{
		{"header:x-api-key", http.Header{"X-Api-Key": {"a"}}, "header X-Api-Key a"},
		{"header:X-Api-Key", http.Header{"X-Api-Key": {"a"}, "X_api_key": {"b"}}, ""},
		{"cookie:id", http.Header{"Cookie": {"x=y; id=a"}}, "cookie id a"},
		{"cookie:id", http.Header{"Cookie": {`id=a; id="\142"`}}, ""},
		{"all", nil, "all"},
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
