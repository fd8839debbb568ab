package httplimit

import (
	"net/http"

	"github.com/slidegate/slidegate/internal/adapter"
)

// problemTypes is the address of the registry for the problem types that the RateLimit draft
// defines.
const problemTypes = "https://iana.org/assignments/http-problem-types#"

var (
	problemNoKey     = adapter.Problem{Title: "Bad Request", Status: http.StatusBadRequest, Detail: "The server could not identify the client: a required header, cookie or address is missing, or a header has several values."}
	problemNoCost    = adapter.Problem{Title: "Bad Request", Status: http.StatusBadRequest, Detail: "The server could not determine what the request costs."}
	problemTooCostly = adapter.Problem{
		Title: "Content Too Large", Status: http.StatusRequestEntityTooLarge,
		Detail: "The request costs more than is ever allowed at once.",
	}
	problemNoPlace = adapter.Problem{
		Title: "Too Many Requests", Status: http.StatusTooManyRequests,
		Detail: "Too many requests are running at the same time. Try again after the time in Retry-After, or when one has ended.",
	}
	problemBlocked = adapter.Problem{
		Title: "Forbidden", Status: http.StatusForbidden,
		Detail: "The server does not accept this request. Waiting does not change that.",
	}
	problemMethod = adapter.Problem{Title: "Method Not Allowed", Status: http.StatusMethodNotAllowed, Detail: "Limits can only be read, by GET or HEAD."}
	problemUnread = adapter.Problem{
		Type: problemTypes + "temporary-reduced-capacity", Title: "Temporarily unavailable", Status: http.StatusServiceUnavailable,
		Detail: "The limits cannot be read at the moment. Try again soon.",
	}
	problemOutage = adapter.Problem{
		Type: problemTypes + "temporary-reduced-capacity", Title: "Temporarily unavailable", Status: http.StatusServiceUnavailable,
		Detail: "Requests cannot be counted at the moment. Try again soon.",
	}
)

// problemOf returns the problem details for a denied request.
func (m *Middleware) problemOf(v verdict) adapter.Problem {
	if adapter.DeniesForever(v.Decision) {
		return problemBlocked
	}
	p := adapter.Problem{
		Type: problemTypes + "quota-exceeded", Title: "Too many requests", Status: http.StatusTooManyRequests,
		Detail: "Try again after the time in Retry-After.",
	}
	names := m.policyOf(v).names
	for i, u := range v.Usage {
		if u.RetryAfter > 0 {
			p.Violated = append(p.Violated, names[i])
		}
	}
	return p
}

// writeProblem responds with the problem d. In an outage, it also sets Retry-After.
func writeProblem(w http.ResponseWriter, d adapter.Problem) {
	if d.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1") // the limiter probes Redis once a second
	}
	adapter.WriteProblem(w, d.Status, d)
}
