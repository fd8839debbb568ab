package httplimit

import (
	"encoding/json"
	"net/http"

	"github.com/slidegate/slidegate/window"
)

// problem is the body of a refusal (RFC 9457). Without a type, its title is that of the status.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"` // names of limits, as in RateLimit-Policy
}

// types are where the draft of the RateLimit fields has its problems registered.
const types = "https://iana.org/assignments/http-problem-types#"

var (
	noKey     = problem{Title: "Bad Request", Status: http.StatusBadRequest, Detail: "The server could not identify the client: a required header, cookie or address is missing."}
	noCost    = problem{Title: "Bad Request", Status: http.StatusBadRequest, Detail: "The server could not determine what the request costs."}
	tooCostly = problem{Title: "Content Too Large", Status: http.StatusRequestEntityTooLarge, Detail: "The request costs more than is ever admitted at once."}
	reduced   = problem{Type: types + "temporary-reduced-capacity", Title: "Temporarily unavailable", Status: http.StatusServiceUnavailable, Detail: "Requests cannot be counted at the moment. Try again soon."}
)

// exceeded is a denial by limits.
func exceeded(d window.Decision) problem {
	p := problem{Type: types + "quota-exceeded", Title: "Too many requests", Status: http.StatusTooManyRequests, Detail: "Come back after the time in Retry-After."}
	for _, u := range d.Usage {
		if u.RetryAfter > 0 {
			p.Violated = append(p.Violated, u.Limit.String())
		}
	}
	return p
}

// writeProblem drops what was said of another body, and lets nobody keep the refusal for others.
func writeProblem(w http.ResponseWriter, p problem) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1") // the limiter looks once a second whether Redis is back
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may be gone
}
