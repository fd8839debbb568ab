package httplimit

import (
	"net/http"

	"github.com/slidegate/slidegate/internal/problem"
	"github.com/slidegate/slidegate/window"
)

// types are where the draft of the RateLimit fields has its problems registered.
const types = "https://iana.org/assignments/http-problem-types#"

var (
	noKey     = problem.Details{Title: "Bad Request", Status: http.StatusBadRequest, Detail: "The server could not identify the client: a required header, cookie or address is missing."}
	noCost    = problem.Details{Title: "Bad Request", Status: http.StatusBadRequest, Detail: "The server could not determine what the request costs."}
	tooCostly = problem.Details{Title: "Content Too Large", Status: http.StatusRequestEntityTooLarge, Detail: "The request costs more than is ever admitted at once."}
	reduced   = problem.Details{Type: types + "temporary-reduced-capacity", Title: "Temporarily unavailable", Status: http.StatusServiceUnavailable, Detail: "Requests cannot be counted at the moment. Try again soon."}
)

// exceeded is a denial by limits.
func exceeded(d window.Decision) problem.Details {
	p := problem.Details{Type: types + "quota-exceeded", Title: "Too many requests", Status: http.StatusTooManyRequests, Detail: "Come back after the time in Retry-After."}
	for _, u := range d.Usage {
		if u.RetryAfter > 0 {
			p.Violated = append(p.Violated, u.Limit.String())
		}
	}
	return p
}

// writeProblem also says when to come back while Redis is out.
func writeProblem(w http.ResponseWriter, d problem.Details) {
	if d.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1") // the limiter looks once a second whether Redis is back
	}
	problem.Write(w, d.Status, d)
}
