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
	keyless adapter.Keyless
}

// shownQuota is a Quota of a status.
type shownQuota struct {
	Quota
	outages adapter.Outages // its Log has the attribute "quota"
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
		o := &s.quotas[i].outages
		s.quotas[i].Quota, o.Outage, o.Request, o.Log = q, string(FailClosed), "request", cfg.Log.With("quota", q.Name)
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
	case hasLimiter && !canInspect(q.Limiter):
		return errNoInspect(q.Limiter)
	}
	return nil
}

func errNoInspect(l Limiter) error {
	return fmt.Errorf("has a Limiter without Inspect, a %T; use a *window.Limiter or an *ar1.Limiter", l)
}

// The limiters with an Inspect method.
type (
	windowInspector interface {
		Inspect(ctx context.Context, event string) (window.Snapshot, error)
	}
	ar1Inspector interface {
		Inspect(ctx context.Context, event string) (ar1.Snapshot, error)
	}
)

// canInspect reports whether inspect knows the type of limiter.
func canInspect(limiter Limiter) bool {
	switch limiter.(type) {
	case adapter.Constant, windowInspector, ar1Inspector:
		return true
	}
	return false
}

// inspect returns the usage of all of the limiter's limits for the given key. Unlimited and Blocked
// have no limits.
func inspect(ctx context.Context, limiter Limiter, key string) (usage []window.Usage, err error) {
	switch l := limiter.(type) {
	case adapter.Constant:
		return nil, nil
	case windowInspector:
		s, err := l.Inspect(ctx, key)
		for _, limit := range s.Limits {
			usage = append(usage, limit.Usage)
		}
		return usage, err
	case ar1Inspector:
		s, err := l.Inspect(ctx, key)
		for _, limit := range s.Limits {
			usage = append(usage, limit.Usage)
		}
		return usage, err
	}
	return nil, fmt.Errorf("the quota %w", errNoInspect(limiter))
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
	keys := make([]string, len(s.quotas))
	for i := range s.quotas {
		q := &s.quotas[i]
		if keys[i] = q.Key(r); keys[i] == "" {
			q.Key.logKeyless(&s.keyless, q.outages.Log, r)
			writeProblem(w, problemNoKey)
			return
		}
	}
	quotas, ok := s.readAll(r, keys)
	if !ok {
		writeProblem(w, problemUnread)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(map[string]any{"quotas": quotas}) // the client may be gone
}

// readAll reads all quotas concurrently, and reports whether all reads succeeded. It calls the
// Choose functions one after another before that, because any of them may modify the request.
func (s *status) readAll(r *http.Request, keys []string) (quotas []quotaStatus, ok bool) {
	limiters, quotas, errs := make([]Limiter, len(keys)), make([]quotaStatus, len(keys)), make([]error, len(keys))
	for i := range s.quotas {
		q := &s.quotas[i]
		limiters[i], errs[i] = (&Config{Limiter: q.Limiter, Choose: q.Choose}).limiter(r)
	}
	inMemory := func(int) bool { return false } // limiters in memory are quick, so they need no special treatment
	calls.Concurrently(len(keys), inMemory, func(i int) {
		if errs[i] == nil {
			quotas[i], errs[i] = s.quotas[i].status(r.Context(), keys[i], limiters[i])
		}
	})
	if errors.Is(r.Context().Err(), context.Canceled) { // the client has gone, so this is not an outage
		return nil, false
	}
	ok = true
	for i, err := range errs {
		q := &s.quotas[i]
		if err != nil {
			q.outages.Fail(err)
			ok = false
		} else if len(quotas[i].Limits) > 0 { // it was read, and is not Unlimited or Blocked
			q.outages.Record(false, nil)
		}
	}
	return quotas, ok
}

// status returns the state of the quota for the given key. One more unit would be allowed if no
// limit would make it wait.
func (q *Quota) status(ctx context.Context, key string, limiter Limiter) (quotaStatus, error) {
	usage, err := inspect(ctx, limiter, key)
	s := quotaStatus{Name: q.Name, Allowed: limiter != Limiter(adapter.Blocked), Limits: make([]limitStatus, len(usage))}
	for i, u := range usage {
		s.Allowed = s.Allowed && u.RetryAfter == 0
		s.Limits[i] = limitStatus{
			Limit: u.Limit.Label(), Max: u.Limit.Max, Window: u.Limit.Per.Seconds(), Used: u.Used, Remaining: u.Remaining,
			RetryAfter: ceilSeconds(u.RetryAfter), ResetAfter: ceilSeconds(u.ResetAfter),
		}
	}
	return s, err
}
