package loginhttp

import (
	_ "embed"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/adapter"
)

// show responds to a request that did not log in.
func (h *Handler) show(w http.ResponseWriter, r *http.Request, result *Result) {
	wait := int64(ceil(result.RetryAfter, time.Second))
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(wait, 10))
	}
	if result.Outcome == OutcomeAsked || mediaType(r) != jsonType {
		h.cfg.Page(w, r, *result)
		return
	}
	body := problemBody{
		Problem: adapter.Problem{Title: http.StatusText(result.Status), Status: result.Status, Detail: result.Message},
		Outcome: result.Outcome, RetryAfter: wait, Challenge: result.Challenge,
	}
	if result.Outcome == OutcomeWrong {
		body.Remaining = &result.Remaining
	}
	adapter.WriteProblem(w, result.Status, body)
}

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("page").Parse(pageHTML))

// plainPage writes the default page, which is used if Config.Page is nil.
func plainPage(w http.ResponseWriter, _ *http.Request, result Result) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	w.WriteHeader(result.Status)
	_ = page.Execute(w, result) // the client may be gone
}

// problemBody is the body of a JSON response (RFC 9457).
type problemBody struct {
	adapter.Problem
	Outcome    Outcome `json:"outcome"`
	RetryAfter int64   `json:"retry_after,omitempty"` // seconds, rounded up
	Challenge  bool    `json:"challenge,omitempty"`
	Remaining  *int64  `json:"remaining,omitempty"`
}
