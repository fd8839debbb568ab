// Package problem answers an HTTP request with problem details (RFC 9457).
package problem

import (
	"encoding/json"
	"net/http"
)

// Details says why a request is refused. Without a Type, the Title is that of the status.
type Details struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"` // names of limits, as in RateLimit-Policy
}

// Write writes Details, or a struct with more fields. It removes the headers that described another
// body, and forbids caching the response.
func Write(w http.ResponseWriter, status int, details any) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(details) // the client may be gone
}
