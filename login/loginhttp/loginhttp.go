// Package loginhttp provides a login form for net/http with brute force protection. Its Handler
// rate limits attempts with a [login.Guard], and remembers known devices in a signed cookie. It
// responds to a wrong password with HTTP 403, and to too many attempts with HTTP 429 and
// Retry-After. You provide a function that checks a password, and a function that starts a session.
//
//	conn := window.Dial("redis://127.0.0.1:6379")
//	guard, err := login.New(conn, login.Config{Name: "login", Secret: secret})
//	...
//	devices, err := loginhttp.NewDevices(secret)
//	...
//	form, err := loginhttp.New(loginhttp.Config{
//		Guard:   guard,
//		Devices: devices,
//		Check:   check,   // reports whether the password is right
//		Success: welcome, // starts a session and redirects
//	})
//	...
//	http.Handle("/login", form)
//
// It also slows down credential stuffing, where a botnet tries leaked passwords on many accounts:
// see [login.Challenged]. For all responses, JSON, challenges and advice, see
// https://github.com/slidegate/slidegate/blob/main/docs/login.md#the-form. For a complete program,
// see https://github.com/slidegate/slidegate/tree/main/examples/login.
package loginhttp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/login"
)

// Config configures a Handler. Guard, Devices, Check and Success are required. For an explanation
// of each field, see https://github.com/slidegate/slidegate/blob/main/docs/login.md#the-form.
type Config struct {
	// Guard decides which attempts are allowed.
	Guard *login.Guard

	// Devices signs and verifies the cookies of known devices. Without such cookies, a client that
	// keeps failing on an account would lock its owner out.
	Devices *Devices

	// Check reports whether the password is right. It is called for attempts that the guard allows.
	// If the account does not exist, compare the password with any hash, so that the response takes
	// equally long. An error means that Check could not find out, so the attempt is given back.
	// Therefore return false and nil for a wrong password, although bcrypt returns an error for it.
	Check func(ctx context.Context, account, password string) (ok bool, err error)

	// Success responds to a request whose password was right. It starts a session under a new ID,
	// and usually redirects with HTTP 303. account is the value that Config.Account returned. The
	// device cookie is already set.
	Success func(w http.ResponseWriter, r *http.Request, account string)

	// Account returns the name or number of the account that the user typed. Return the same value
	// for all spellings of an account, because otherwise an attacker has a budget for each
	// spelling. If there is no such account, return the typed name in the form in which you
	// searched for it, or "" if no account can have that name. If Account returns an error, the
	// response is HTTP 503. nil means that spaces are trimmed and letters are mapped to lower case.
	Account func(ctx context.Context, typed string) (account string, err error)

	// Solved reports whether the form contains a correct solution to a challenge, such as a
	// captcha. It is called only if the attempt is denied and a challenge would help. Accept each
	// solution only once, and only for this account. Solved requires a Guard with
	// login.Config.Challenged, and a Page that shows the challenge. nil means no challenges.
	Solved func(r *http.Request, account string) (bool, error)

	// PasswordChanged returns when the account's password was last set. Devices remembered before
	// then are treated as unknown, so a new password invalidates stolen cookies. PasswordChanged is
	// called only if the request has a valid cookie for the account. nil means that devices stay
	// known when the password changes.
	PasswordChanged func(ctx context.Context, account string) (time.Time, error)

	// SecondFactor means that a second factor follows, so the right password alone does not make
	// the device known. Call Devices.Remember after the second factor.
	SecondFactor bool

	// Page responds to each request that did not log in, including a GET, except requests with a
	// JSON body. It must set Content-Type and write Result.Status; other headers are already set.
	// nil means a plain page in English.
	Page func(w http.ResponseWriter, r *http.Request, result Result)

	// Clients finds the client's IP address. The zero Clients uses the address of the connection.
	// Behind a proxy, use httplimit.ClientsBehind, ClientsByHops or ClientsIn, because otherwise
	// all users share one budget.
	Clients httplimit.Clients

	// CrossOrigin decides which other sites may submit the form. nil means none, so that no other
	// site can log a visitor into an attacker's account.
	CrossOrigin *http.CrossOriginProtection

	// Log receives failures, denials and outages. It never receives account names, because users
	// sometimes type their password in the account field. nil means slog.Default().
	Log *slog.Logger
}

// Handler serves a login form. A GET shows the form. A POST is an attempt to log in, with the
// fields account and password.
//
// The body is a form (application/x-www-form-urlencoded) or a JSON object whose values are all
// strings, of at most 16 KiB. Use r.PostFormValue to read further fields of a form or of a JSON
// object. The response to a JSON body is a problem details object (RFC 9457), unless the login
// succeeds.
//
// Create a Handler with New. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	outages adapter.Outages
}

// New returns a Handler for a login form. The error says what is missing or wrong in cfg.
func New(cfg Config) (*Handler, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Account == nil {
		cfg.Account = lowerCase
	}
	if cfg.Page == nil {
		cfg.Page = plainPage
	}
	cfg.CrossOrigin = cmp.Or(cfg.CrossOrigin, http.NewCrossOriginProtection())
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &Handler{cfg: cfg, outages: adapter.Outages{Outage: "nobody can log in", Log: cfg.Log}}, nil
}

// check returns an error if a field is missing, or conflicts with another field.
func (cfg Config) check() error {
	switch {
	case cfg.Guard == nil || cfg.Guard.Limiter(login.BudgetTotal) == nil:
		return errors.New("slidegate: login form without a Guard; create one with login.New or login.NewLocal")
	case cfg.Devices == nil || len(cfg.Devices.keys) == 0:
		return errors.New("slidegate: login form without Devices; create them with NewDevices(secret)")
	case cfg.Check == nil:
		return errors.New("slidegate: login form without Check; give it a function that compares the password with the account's")
	case cfg.Success == nil:
		return errors.New("slidegate: login form without Success; give it a function that starts a session and redirects")
	case cfg.Solved != nil && cfg.Guard.Limiter(login.BudgetChallengedAddress) == nil:
		return errors.New("slidegate: login form with Solved, but its Guard has no challenges; set login.Config.Challenged, for example to &login.Challenged{}")
	case cfg.Solved != nil && cfg.Page == nil:
		return errors.New("slidegate: login form with Solved, but without a Page; give it one that shows the challenge if Result.Challenge is set")
	}
	return nil
}

// lowerCase returns the typed name in lower case, without leading and trailing spaces.
func lowerCase(_ context.Context, typed string) (string, error) {
	return strings.ToLower(strings.TrimSpace(typed)), nil
}

// ServeHTTP shows the form, or responds to an attempt to log in.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h.show(w, r, &Result{Status: http.StatusOK, Outcome: OutcomeAsked})
	case http.MethodPost:
		h.post(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		h.show(w, r, invalid(http.StatusMethodNotAllowed, "Send the form by POST."))
	}
}

// post responds to an attempt to log in.
func (h *Handler) post(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	account, refused := h.login(r)
	if refused != nil {
		refused.Account = r.PostForm.Get("account")
		h.show(w, r, refused)
		return
	}
	if !h.cfg.SecondFactor {
		h.cfg.Devices.Remember(w, account)
	}
	h.cfg.Success(w, r, account)
}

// login returns the account if the password was right. Otherwise it returns a Result that says why
// the login failed.
func (h *Handler) login(r *http.Request) (account string, refused *Result) {
	if refused = h.read(r); refused != nil {
		return "", refused
	}
	account, err := h.cfg.Account(r.Context(), r.PostFormValue("account"))
	if err != nil {
		return "", h.unavailable("slidegate: login: cannot look up an account", err)
	}
	if account == "" || r.PostFormValue("password") == "" {
		return "", invalid(http.StatusBadRequest, "Enter your account and your password.")
	}
	client, err := h.cfg.Clients.Addr(r)
	if err != nil {
		h.cfg.Log.Error("slidegate: login: no client address", "err", err)
		return "", invalid(http.StatusBadRequest, "The server could not identify your IP address.")
	}
	device, err := h.device(r, account)
	if err != nil {
		return "", h.unavailable("slidegate: login: cannot look up when a password changed", err)
	}
	a, err := h.begin(r, account, client, device)
	if r.Context().Err() == nil { // otherwise the client may have caused the error
		byFallback, cause := false, err
		if err == nil {
			byFallback, cause = a.Degraded, a.Cause
		}
		h.outages.Record(byFallback, cause)
	}
	switch {
	case err != nil:
		return "", unavailable()
	case !a.Allowed:
		h.cfg.Log.Warn("slidegate: login denied", "from", client, "budget", a.DeniedBy, "retry_after", a.RetryAfter.Round(time.Second))
		return "", denied(a.RetryAfter, a.Challenge && h.cfg.Solved != nil)
	}
	return account, h.check(r, a, account, client)
}

// device returns the ID of the device that sent the request, or "" if the device is unknown.
func (h *Handler) device(r *http.Request, account string) (string, error) {
	device, since := h.cfg.Devices.Known(r, account)
	if device == "" || h.cfg.PasswordChanged == nil {
		return device, nil
	}
	changed, err := h.cfg.PasswordChanged(r.Context(), account)
	if err != nil || since.Before(changed.Truncate(time.Millisecond)) {
		return "", err
	}
	return device, nil
}

// begin asks the guard. If the attempt is denied, a challenge would help, and the request solves
// it, begin asks the guard again.
func (h *Handler) begin(r *http.Request, account string, client netip.Addr, device string) (a *login.Attempt, err error) {
	if device == "" {
		a, err = h.cfg.Guard.Begin(r.Context(), account, client)
	} else {
		a, err = h.cfg.Guard.BeginKnown(r.Context(), account, client, device)
	}
	if err != nil || !a.Challenge || h.cfg.Solved == nil {
		return a, err
	}
	ok, err := h.cfg.Solved(r, account)
	switch {
	case err != nil:
		h.cfg.Log.Error("slidegate: login: cannot verify the solution of a challenge", "err", err)
	case ok:
		return h.cfg.Guard.BeginChallenged(r.Context(), account, client)
	}
	return a, nil
}

// check checks the password after the guard has allowed the attempt. It returns nil if the password
// is right.
func (h *Handler) check(r *http.Request, a *login.Attempt, account string, client netip.Addr) *Result {
	ok, err := h.cfg.Check(r.Context(), account, r.PostFormValue("password"))
	switch {
	case err != nil && r.Context().Err() != nil: // the client has hung up: the charges stay, because otherwise it could guess for free
		return unavailable()
	case err != nil:
		return h.unavailable("slidegate: login: cannot check a password", errors.Join(err, a.Cancel(r.Context())))
	case !ok:
		h.cfg.Log.Info("slidegate: login failed", "from", client, "remaining", a.Remaining)
		return wrong(a.Remaining, a.NextWait)
	}
	if err := a.Succeed(r.Context()); err != nil && !a.Degraded { // the start of the outage is already logged
		h.cfg.Log.Warn("slidegate: login: some charges stay", "err", err)
	}
	return nil
}

// unavailable logs what failed, and returns the Result of an outage.
func (h *Handler) unavailable(what string, err error) *Result {
	h.cfg.Log.Error(what, "err", err)
	return unavailable()
}
