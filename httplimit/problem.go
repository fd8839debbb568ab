package httplimit

import (
	"net/http"

	"github.com/slidegate/slidegate/internal/problem"
	"github.com/slidegate/slidegate/window"
)

// problemTypes is where the draft of the RateLimit fields registers its problem types.
const problemTypes = "https://iana.org/assignments/http-problem-types#"

var (
	problemNoKey     = problem.Details{Title: "Bad Request", Status: http.StatusBadRequest, Detail: "The server could not identify the client: a required header, cookie or address is missing, or a header has several values."}
	problemNoCost    = problem.Details{Title: "Bad Request", Status: http.StatusBadRequest, Detail: "The server could not determine what the request costs."}
	problemTooCostly = problem.Details{
		Title: "Content Too Large", Status: http.StatusRequestEntityTooLarge,
		Detail: "The request costs more than is ever admitted at once.",
	}
	problemOutage = problem.Details{
		Type: problemTypes + "temporary-reduced-capacity", Title: "Temporarily unavailable", Status: http.StatusServiceUnavailable,
		Detail: "Requests cannot be counted at the moment. Try again soon.",
	}
)

// problemDenied returns the problem of a request that limits deny.
func problemDenied(d window.Decision) problem.Details {
	p := problem.Details{
		Type: problemTypes + "quota-exceeded", Title: "Too many requests", Status: http.StatusTooManyRequests,
		Detail: "Come back after the time in Retry-After.",
	}
	for _, u := range d.Usage {
		if u.RetryAfter > 0 {
			p.Violated = append(p.Violated, u.Limit.Label())
		}
	}
	return p
}

// writeProblem writes a problem, and for an outage also Retry-After.
func writeProblem(w http.ResponseWriter, d problem.Details) {
	if d.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1") // the limiter probes Redis once a second
	}
	problem.Write(w, d.Status, d)
}
