package adapter

import (
	"encoding/json"
	"net/http"
)

// Problem holds problem details (RFC 9457): why an HTTP request is refused. If there is no Type,
// the Title must be the status text.
type Problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"` // names of limits, as in RateLimit-Policy
}

// WriteProblem writes a response with the given status and details, which are a Problem or a struct
// that has further fields. It removes headers that described another body, and forbids caching.
func WriteProblem(w http.ResponseWriter, status int, details any) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(details) // the client may be gone
}
