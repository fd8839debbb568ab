// Package webaudit audits the rate limit of an HTTP service. It checks the service's decisions
// using package audit, the header fields of the responses, and ways to bypass the limit. It sends
// requests to a single IP address, and no more than it announces.
package webaudit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/audit"
	"github.com/slidegate/slidegate/window"
)

// Config configures an Audit. URL and Claims are required.
type Config struct {
	URL    *url.URL
	Claims []window.Limit
	Own    bool // the service belongs to the user, so it need not be on this machine or in a private network

	Method string // "" means GET
	Header http.Header
	Body   []byte
	Denied []int // the status codes of a denied request; nil means 429

	MaxRequests int           // 0 means 5,000
	MaxTime     time.Duration // 0 means 5 minutes
}

const (
	defaultRequests = 5000
	defaultTime     = 5 * time.Minute
	waysTime        = 20 * time.Second // for trying ways to bypass the limit
	reserve         = 2 * time.Second  // for the last responses
)

// Audit is an audit that is ready to run. New creates it.
type Audit struct {
	Requests int           // the maximum number of requests
	Time     time.Duration // the maximum duration
	Address  string        // the IP address and port of all requests

	cfg    Config
	plan   audit.Config
	client *client
	base   request
	ways   []way

	mu           sync.Mutex
	began        time.Time
	order        int
	observations []observation
	sample       *answer // the response to an allowed request
	varies       bool    // responses to allowed requests differ in their bodies
	dates        bool    // some Retry-After field is a date
	status       map[int]int
}

// New looks up the service's IP address and plans the audit. It sends nothing to the service.
func New(ctx context.Context, cfg Config) (*Audit, error) {
	setDefaults(&cfg)
	if !isToken(cfg.Method) {
		return nil, fmt.Errorf("%q is not a method; write one such as GET or POST", cfg.Method)
	}
	t, err := resolve(ctx, cfg.URL, cfg.Own)
	if err != nil {
		return nil, err
	}
	a := &Audit{cfg: cfg, Address: t.addr.String(), client: &client{target: t}, status: map[int]int{}}
	a.base = request{cfg.Method, cfg.URL.RequestURI(), cfg.URL.Host, cfg.Header, cfg.Body}
	if host := cfg.Header.Get("Host"); host != "" {
		a.base.host = host
	}
	for _, own := range []string{"Host", "Content-Length", "Transfer-Encoding", "Connection"} { // the client sets them
		cfg.Header.Del(own)
	}
	a.ways = a.allWays()
	extra := a.wayRequests()
	a.plan = audit.Config{
		Claims: cfg.Claims, Attempt: a.attempt, WaitStep: time.Second,
		MaxTime: cfg.MaxTime - waysTime - reserve, MaxAttempts: cfg.MaxRequests - extra,
	}
	if a.plan.MaxTime <= 0 || a.plan.MaxAttempts <= 0 { // 0 would mean the default
		return nil, a.boundsError(errors.New("no attack fits; allow more"), extra)
	}
	plan, err := a.plan.Plan()
	if err != nil {
		return nil, a.boundsError(err, extra)
	}
	a.Requests, a.Time = plan.Attempts+extra, plan.Time+waysTime+reserve
	a.client.left.Store(int64(a.Requests))
	return a, nil
}

// boundsError returns an error that explains why no attack fits within the bounds.
func (a *Audit) boundsError(err error, ways int) error {
	return fmt.Errorf("%w: of the %v and %d requests, the ways around the limit take %v and %d", err, a.cfg.MaxTime, a.cfg.MaxRequests, waysTime+reserve, ways)
}

// isToken reports whether text can be a method or the name of a header field.
func isToken(text string) bool {
	other := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) }
	return text != "" && !strings.ContainsFunc(text, other)
}

func setDefaults(cfg *Config) {
	if cfg.Method == "" {
		cfg.Method = http.MethodGet
	}
	if cfg.Denied == nil {
		cfg.Denied = []int{http.StatusTooManyRequests}
	}
	if cfg.MaxRequests == 0 {
		cfg.MaxRequests = defaultRequests
	}
	if cfg.MaxTime == 0 {
		cfg.MaxTime = defaultTime
	}
	cfg.Header = cfg.Header.Clone()
	if cfg.Header == nil {
		cfg.Header = http.Header{}
	}
	if cfg.Header.Get("User-Agent") == "" {
		cfg.Header.Set("User-Agent", "slidegate-audit")
	}
}

// Announce says what Run will do.
func (a *Audit) Announce() string {
	return fmt.Sprintf("At most %d requests %s %s\nto %s, in at most %s.", a.Requests, a.cfg.Method, a.cfg.URL, a.Address, formatSeconds(a.Time+time.Second/2))
}

// Report is the result of auditing a service.
type Report struct {
	URL      string      `json:"url"`
	Address  string      `json:"address"`
	Requests int64       `json:"requests"`
	Status   map[int]int `json:"status"` // the number of responses by status code
	Ways     []Way       `json:"ways"`
	*audit.Report
}

// origin returns the scheme and the host of the service.
func (r *Report) origin() string {
	if u, err := url.Parse(r.URL); err == nil {
		return u.Scheme + "://" + u.Host
	}
	return r.URL
}

// Run audits the service within Time and Requests. It returns an error if the service does not
// respond, or if ctx is done.
func (a *Audit) Run(ctx context.Context) (*Report, error) {
	defer a.client.close()
	a.began = time.Now()
	timed, cancel := context.WithTimeout(ctx, a.Time)
	defer cancel()
	unserved := a.probeUnserved(timed)
	rep, err := audit.Run(ctx, a.plan)
	if err != nil {
		return nil, err
	}
	r := &Report{URL: a.cfg.URL.String(), Address: a.Address, Report: rep}
	a.tryWays(timed, r, unserved)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("the audit was interrupted: %w", err)
	}
	r.Took = time.Since(a.began)
	oneBudget := !r.Found(audit.KindExcess) && !r.Found(audit.KindRace) && !r.Found(Connection)
	r.Findings = append(r.Findings, checkFields(a.observations, oneBudget)...)
	r.Requests, r.Status = a.client.sent.Load(), a.status
	a.addRemarks(r)
	return r, nil
}

// addRemarks adds remarks on what the responses do not prove.
func (a *Audit) addRemarks(r *Report) {
	said := func(s observation) bool { return s.remaining >= 0 || s.wait >= 0 }
	if !slices.ContainsFunc(a.observations, said) {
		r.NotTested = append(r.NotTested, "header fields: no answer had a RateLimit or X-RateLimit-Remaining field that covers all claims")
	}
	if a.dates && r.Waits.Reported == 0 {
		r.NotTested = slices.DeleteFunc(r.NotTested, func(left string) bool { return strings.HasPrefix(left, "waits:") })
		r.NotTested = append(r.NotTested, "waits: Retry-After is a date, and the clock of the service is unknown")
	}
	if a.sample != nil && a.sample.status == http.StatusNotFound {
		r.NotTested = append(r.NotTested, "the service itself: allowed requests get 404, so the path may be wrong")
	}
	if a.sample != nil && a.sample.status/100 == 3 {
		r.NotTested = append(r.NotTested, "the targets of redirects: answers have status "+fmt.Sprint(a.sample.status)+", and redirects are not followed")
	}
}

// attempt sends the usual request.
func (a *Audit) attempt(ctx context.Context) (bool, time.Duration, error) {
	began := a.tick()
	got, err := a.client.send(ctx, a.base)
	answer, err := a.classify(got, err)
	a.record(began, got, answer)
	return answer == audit.AnswerAllowed, got.retryAfter(), err
}

func (a *Audit) tick() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.order++
	return a.order
}

// classify returns the outcome of a request.
func (a *Audit) classify(got answer, err error) (audit.Answer, error) {
	switch {
	case err != nil:
		return audit.AnswerUnknown, err
	case slices.Contains(a.cfg.Denied, got.status):
		return audit.AnswerDenied, nil
	case got.status >= http.StatusInternalServerError:
		return audit.AnswerUnknown, fmt.Errorf("the answer has status %d; if the service denies with it, add --denied %d", got.status, got.status)
	}
	return audit.AnswerAllowed, nil
}

// record records the response to a request.
func (a *Audit) record(began int, got answer, answer audit.Answer) {
	a.addObservation(observation{began, a.tick(), answer == audit.AnswerDenied, answer == audit.AnswerUnknown, read(got.header, a.cfg.Claims)})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count(got)
	if _, err := http.ParseTime(got.header.Get("Retry-After")); err == nil {
		a.dates = true
	}
	if answer != audit.AnswerAllowed {
		return
	}
	if a.sample == nil {
		a.sample = &got
	}
	a.varies = a.varies || got.body != a.sample.body
}

// count counts the response's status, if there is a response.
func (a *Audit) count(got answer) {
	if got.status != 0 {
		a.status[got.status]++
	}
}

// addObservation inserts an observation, keeping the order in which requests were sent.
func (a *Audit) addObservation(s observation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(a.observations, s.began, func(s observation, n int) int { return s.began - n })
	a.observations = slices.Insert(a.observations, i, s)
}
