package httplimit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/internal/calls"
	"github.com/slidegate/slidegate/window"
)

// StatusConfig configures NewStatus. Quotas is required.
type StatusConfig struct {
	// Quotas lists the limiters whose state callers see, in the order in which the JSON lists them.
	Quotas []Quota

	// Log receives a line when an outage starts or ends, for an error that concerns a single key,
	// and for the first request without a key. Each line carries the Quota's Name as the attribute
	// "quota". nil means slog.Default().
	Log *slog.Logger
}

// Quota is a limiter whose state callers see. Name and Key are required, and so is either
// Limiter or Choose.
type Quota struct {
	Name    string                               // the name in the JSON, unique in the StatusConfig
	Limiter Limiter                              // a *window.Limiter or an *ar1.Limiter
	Choose  func(*http.Request) (Limiter, error) // as in Config; it can also return Unlimited or Blocked
	Key     Key                                  // returns the event key whose counts the caller sees
}

// status is the handler that NewStatus returns.
type status struct {
	quotas  []shownQuota
	keyless sync.Once // logs the first request without a key
}

// shownQuota is a Quota of a status.
type shownQuota struct {
	Quota
	log     *slog.Logger // with the attribute "quota"
	outages adapter.Journal
}

// NewStatus returns a handler that shows callers how much of their limits they have left, as JSON.
// It does not count requests. Authenticate callers first: each Key must return a key that belongs
// to the caller. See https://github.com/slidegate/slidegate/blob/main/docs/http.md#status.
//
// The handler responds to GET and HEAD with the JSON if all quotas can be read. Otherwise it
// responds with problem details: HTTP 405 for any other method, 400 if the caller has no key, and
// 503 if any of the quotas cannot be read. It is safe for concurrent use.
//
// NewStatus returns an error if there are no Quotas, or if a Quota lacks a required field, has the
// Name of another Quota, or has a Limiter that cannot be inspected.
func NewStatus(cfg StatusConfig) (http.Handler, error) {
	if len(cfg.Quotas) == 0 {
		return nil, errors.New("slidegate: the Status has no Quotas; name the limiters that callers see")
	}
	for i, q := range cfg.Quotas {
		if err := q.check(); err != nil {
			return nil, fmt.Errorf("slidegate: quota %d of the Status, %q, %w", i+1, q.Name, err)
		}
		if slices.ContainsFunc(cfg.Quotas[:i], func(before Quota) bool { return before.Name == q.Name }) {
			return nil, fmt.Errorf("slidegate: two quotas of the Status have the Name %q; give each its own", q.Name)
		}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	s := &status{quotas: make([]shownQuota, len(cfg.Quotas))}
	for i, q := range cfg.Quotas {
		s.quotas[i].Quota, s.quotas[i].log = q, cfg.Log.With("quota", q.Name)
	}
	return s, nil
}

// check returns an error if q is invalid. The error states the problem and the remedy.
func (q *Quota) check() error {
	hasLimiter := !adapter.IsNil(q.Limiter)
	switch {
	case q.Name == "":
		return errors.New("has no Name; set the one that callers see")
	case hasLimiter == (q.Choose != nil):
		return errors.New("needs either a Limiter or Choose")
	case q.Key == nil:
		return errors.New("has no Key; set one that returns whose counts the caller sees, as in Config")
	case hasLimiter && inspectOf(q.Limiter) == nil:
		return errNoInspect(q.Limiter)
	}
	return nil
}

func errNoInspect(l Limiter) error {
	return fmt.Errorf("has a Limiter without Inspect, a %T; use a *window.Limiter or an *ar1.Limiter", l)
}

// inspect is a function that returns the usage of all limits for the given key, and whether one
// more unit would be allowed.
type inspect func(ctx context.Context, key string) (usage []window.Usage, allowed bool, err error)

// inspectOf returns the function that inspects limiter, or nil if limiter cannot be inspected.
func inspectOf(limiter Limiter) inspect {
	switch l := limiter.(type) {
	case adapter.Constant:
		return func(ctx context.Context, key string) ([]window.Usage, bool, error) {
			d, err := l.AllowN(ctx, key, 1)
			return nil, d.Allowed, err
		}
	case interface {
		Inspect(context.Context, string) (window.Snapshot, error)
	}:
		return func(ctx context.Context, key string) ([]window.Usage, bool, error) {
			s, err := l.Inspect(ctx, key)
			return usageOf(s.Limits, func(l window.LimitState) window.Usage { return l.Usage }, err)
		}
	case interface {
		Inspect(context.Context, string) (ar1.Snapshot, error)
	}:
		return func(ctx context.Context, key string) ([]window.Usage, bool, error) {
			s, err := l.Inspect(ctx, key)
			return usageOf(s.Limits, func(l ar1.LimitState) window.Usage { return l.Usage }, err)
		}
	}
	return nil
}

// usageOf returns the usage of each limit, and whether all of them would allow one more unit.
func usageOf[L any](limits []L, of func(L) window.Usage, err error) (usage []window.Usage, allowed bool, _ error) {
	allowed = true
	for _, l := range limits {
		u := of(l)
		usage, allowed = append(usage, u), allowed && u.RetryAfter == 0
	}
	return usage, allowed, err
}

// quotaStatus is the state of a Quota in the JSON.
type quotaStatus struct {
	Name    string        `json:"name"`
	Allowed bool          `json:"allowed"`
	Limits  []limitStatus `json:"limits"`
}

// limitStatus is the state of a limit in the JSON. RetryAfter and ResetAfter are in seconds,
// rounded up.
type limitStatus struct {
	Limit      string  `json:"limit"`
	Max        int64   `json:"max"`
	Window     float64 `json:"window"` // in seconds
	Used       int64   `json:"used"`
	Remaining  int64   `json:"remaining"`
	RetryAfter int64   `json:"retry_after"`
	ResetAfter int64   `json:"reset_after"`
}

// ServeHTTP responds with the state of the caller's quotas.
func (s *status) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeProblem(w, problemMethod)
		return
	}
	keys, ok := s.keys(r)
	if !ok {
		writeProblem(w, problemNoKey)
		return
	}
	quotas, ok := s.readAll(r, keys, s.choose(r))
	if !ok {
		writeProblem(w, problemUnread)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(map[string]any{"quotas": quotas}) // the client may be gone
}

// keys returns the caller's key for each quota, and whether the caller has a key for all of them.
func (s *status) keys(r *http.Request) (keys []string, ok bool) {
	for i := range s.quotas {
		q := &s.quotas[i]
		key := q.Key(r)
		if key == "" {
			s.keyless.Do(func() {
				q.log.Warn("slidegate: requests without a key are refused; only the first is logged", "reason", q.Key.explain(r).String())
			})
			return nil, false
		}
		keys = append(keys, key)
	}
	return keys, true
}

// choose returns a function for each quota that inspects the quota's limiter. It calls the Choose
// functions one after another, because any of them may modify the request.
func (s *status) choose(r *http.Request) []inspect {
	looks := make([]inspect, len(s.quotas))
	for i := range s.quotas {
		looks[i] = s.quotas[i].choose(r)
	}
	return looks
}

// choose returns the function that inspects the limiter for r. If there is no such limiter, or it
// cannot be inspected, the returned function returns an error.
func (q *Quota) choose(r *http.Request) inspect {
	l, err := (&Config{Limiter: q.Limiter, Choose: q.Choose}).limiter(r)
	look := inspectOf(l)
	if err == nil && look == nil {
		err = fmt.Errorf("the quota %w", errNoInspect(l))
	}
	if err != nil {
		return func(context.Context, string) ([]window.Usage, bool, error) { return nil, false, err }
	}
	return look
}

// readAll reads all quotas concurrently, and reports whether all reads succeeded.
func (s *status) readAll(r *http.Request, keys []string, looks []inspect) (quotas []quotaStatus, ok bool) {
	quotas, errs := make([]quotaStatus, len(keys)), make([]error, len(keys))
	inMemory := func(int) bool { return false } // limiters in memory are quick, so they need no special treatment
	calls.Concurrently(len(keys), inMemory, func(i int) { quotas[i], errs[i] = s.quotas[i].read(r.Context(), keys[i], looks[i]) })
	if errors.Is(r.Context().Err(), context.Canceled) { // the client has gone, so this is not an outage
		return nil, false
	}
	ok = true
	for i, err := range errs {
		q := &s.quotas[i]
		if err != nil {
			q.outages.Failed(q.log, string(FailClosed), "request", err)
			ok = false
		} else if len(quotas[i].Limits) > 0 { // it was read, and is not Unlimited or Blocked
			q.outages.Note(q.log, string(FailClosed), false, nil)
		}
	}
	return quotas, ok
}

// read returns the state of the quota for the given key.
func (q *Quota) read(ctx context.Context, key string, look inspect) (quotaStatus, error) {
	usage, allowed, err := look(ctx, key)
	s := quotaStatus{Name: q.Name, Allowed: allowed, Limits: make([]limitStatus, len(usage))}
	for i, u := range usage {
		s.Limits[i] = limitStatus{
			Limit: u.Limit.Label(), Max: u.Limit.Max, Window: u.Limit.Per.Seconds(), Used: u.Used, Remaining: u.Remaining,
			RetryAfter: ceilSeconds(u.RetryAfter), ResetAfter: ceilSeconds(u.ResetAfter),
		}
	}
	return s, err
}
