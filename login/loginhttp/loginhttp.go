// Package loginhttp serves a login form behind a login.Guard, as an http.Handler. It is brute force protection for a
// function that checks a password: it rate limits attempts, remembers known devices in a signed cookie, and answers with
// the right status and headers.
//
//	devices, err := loginhttp.NewDevices(secret)
//	...
//	form, err := loginhttp.New(loginhttp.Config{
//		Guard:   guard,
//		Devices: devices,
//		Check:   check,   // reports whether the password is right
//		Success: welcome, // begins a session and redirects
//	})
//	...
//	http.Handle("/login", form)
//
// docs/login.md explains it, and examples/login is a whole program.
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
	"github.com/slidegate/slidegate/internal/journal"
	"github.com/slidegate/slidegate/login"
)

// Config says who may log in, and what happens then. Guard, Devices, Check and Success are required.
type Config struct {
	// Guard decides which attempts may be made.
	Guard *login.Guard

	// Devices signs and verifies the cookies of known devices. Without such cookies, anyone who keeps failing on an account
	// locks its owner out.
	Devices *Devices

	// Check reports whether the password is right. It is called only for attempts that the guard allows. For an account that
	// does not exist, compare the password with some other hash, so that the answer takes as long.
	//
	// An error means that Check could not find out. The attempt is then not counted as a failure, so a wrong password must
	// not be an error: the functions of bcrypt return one for it.
	Check func(ctx context.Context, account, password string) (ok bool, err error)

	// Success answers a request whose password was right. It begins a session under a new ID, and typically redirects with
	// the status 303. The account is as Account returned it. The cookie of the device is set already.
	Success func(w http.ResponseWriter, r *http.Request, account string)

	// Account returns the name or number under which the service knows the account that somebody typed. All spellings of
	// one account must become one, or an attacker has a budget for each spelling. If there is no such account, return the
	// typed name in the form in which it was looked up; if nobody can have such a name, return "". An error is answered by
	// 503. nil removes spaces around the name and maps it to lower case.
	Account func(ctx context.Context, typed string) (account string, err error)

	// Solved verifies the solution of a challenge that the form carries, such as a captcha. It reports false if there is no
	// solution, or a wrong one. It is called only if the attempt is denied and a challenge would help. Let a solution serve
	// once, and only for this account. It needs a Guard with challenges and a Page that shows one. nil is a form without
	// challenges.
	Solved func(r *http.Request, account string) (bool, error)

	// PasswordChanged returns when the account's password was last set. Devices remembered before are then unknown, so a
	// stolen cookie ends with the password. It is called only if a cookie was signed for this account. nil keeps devices.
	// The time is compared with that of the process that set the cookie. Where the two clocks differ, a cookie set just before
	// the change can stay, or one set just after it can be unknown until the next login.
	PasswordChanged func(ctx context.Context, account string) (time.Time, error)

	// SecondFactor leaves the device unknown after the password. Call Devices.Remember when the second factor was right, too.
	SecondFactor bool

	// Page answers every request that did not log in, a GET as well, except those with a JSON body. Headers are set, except
	// Content-Type. It must write the status Result.Status. nil is a plain page in English.
	Page func(w http.ResponseWriter, r *http.Request, result Result)

	// Clients finds the client's IP address. The zero Clients takes that of the connection. Behind a proxy take one of
	// httplimit.ClientsBehind, ClientsByHops or ClientsIn, or all users share one budget.
	Clients httplimit.Clients

	// CrossOrigin decides which other sites may send the form, so that nobody can log a user into an account that is not
	// theirs. nil allows none.
	CrossOrigin *http.CrossOriginProtection

	// Log gets failures, denials and outages, without account names: people type passwords there. nil is slog.Default().
	Log *slog.Logger
}

// Handler is a login form. A GET shows it and a POST is an attempt to log in, with the fields account and password. The body is
// a form (application/x-www-form-urlencoded), or a JSON object of strings, at most 16 KiB. r.PostFormValue reads the fields of
// both, also further ones. A JSON body is answered with problem details (RFC 9457), unless the login succeeds.
//
// A Handler comes from New and is safe for concurrent use.
type Handler struct {
	cfg     Config
	outages journal.Journal
}

// New returns a login form. The error says what cfg lacks.
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
	return &Handler{cfg: cfg}, nil
}

func (cfg Config) check() error {
	switch {
	case cfg.Guard == nil || cfg.Guard.Limiter(login.Total) == nil:
		return errors.New("slidegate: login form without a Guard; give it one of login.New, login.NewOn or login.NewLocal")
	case cfg.Devices == nil || len(cfg.Devices.keys) == 0:
		return errors.New("slidegate: login form without Devices; give it those of NewDevices(secret)")
	case cfg.Check == nil:
		return errors.New("slidegate: login form without Check; give it a function that compares the password with the account's")
	case cfg.Success == nil:
		return errors.New("slidegate: login form without Success; give it a function that begins a session and redirects")
	case cfg.Solved != nil && cfg.Guard.Limiter(login.ChallengedAddress) == nil:
		return errors.New("slidegate: login form with Solved, and its Guard has no challenges; set login.Config.Challenged, such as to &login.Challenged{}")
	case cfg.Solved != nil && cfg.Page == nil:
		return errors.New("slidegate: login form with Solved, and no Page; give it one that shows the challenge if Result.Challenge is set")
	}
	return nil
}

func lowerCase(_ context.Context, typed string) (string, error) {
	return strings.ToLower(strings.TrimSpace(typed)), nil
}

// ServeHTTP shows the form, or answers an attempt to log in.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h.show(w, r, &Result{Status: http.StatusOK, Outcome: Asked})
	case http.MethodPost:
		h.post(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		h.show(w, r, invalid(http.StatusMethodNotAllowed, "Send the form by POST."))
	}
}

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

// login returns the account whose password was right, or else the Result that says why nobody is logged in.
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
	return account, h.attempt(r, account, client)
}

// attempt returns nil if the password is right.
func (h *Handler) attempt(r *http.Request, account string, client netip.Addr) *Result {
	device, err := h.device(r, account)
	if err != nil {
		return h.unavailable("slidegate: login: cannot look up when a password changed", err)
	}
	a, err := h.begin(r, account, client, device)
	if r.Context().Err() == nil { // else the error can be the client's
		h.outages.Note(h.cfg.Log, "nobody can log in", err == nil && a.Degraded, err)
	}
	switch {
	case err != nil:
		return unavailable()
	case !a.Allowed:
		h.cfg.Log.Warn("slidegate: login denied", "from", client, "budget", a.Denied, "retry_after", a.RetryAfter.Round(time.Second))
		return denied(a.RetryAfter, a.Challenge && h.cfg.Solved != nil)
	}
	return h.check(r, a, account, client)
}

// device returns the ID of a known device, or "".
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

// begin asks the guard, and once more if a challenge that would help is solved.
func (h *Handler) begin(r *http.Request, account string, client netip.Addr, device string) (a *login.Attempt, err error) {
	if device == "" {
		a, err = h.cfg.Guard.Begin(r.Context(), account, client)
	} else {
		a, err = h.cfg.Guard.BeginKnown(r.Context(), account, client, device)
	}
	if err == nil && a.Challenge && h.solved(r, account) {
		return h.cfg.Guard.BeginChallenged(r.Context(), account, client)
	}
	return a, err
}

// solved reports whether the form carries the solution of a challenge.
func (h *Handler) solved(r *http.Request, account string) bool {
	if h.cfg.Solved == nil {
		return false
	}
	ok, err := h.cfg.Solved(r, account)
	if err != nil {
		h.cfg.Log.Error("slidegate: login: cannot verify the solution of a challenge", "err", err)
	}
	return ok && err == nil
}

// check looks at the password, as the guard allows it. It returns nil if that is right.
func (h *Handler) check(r *http.Request, a *login.Attempt, account string, client netip.Addr) *Result {
	ok, err := h.cfg.Check(r.Context(), account, r.PostFormValue("password"))
	switch {
	case err != nil && r.Context().Err() != nil: // a client that hangs up stays charged, or it could guess for free
		return unavailable()
	case err != nil:
		return h.unavailable("slidegate: login: cannot check a password", errors.Join(err, a.Cancel(r.Context())))
	case !ok:
		h.cfg.Log.Info("slidegate: login failed", "from", client, "left", a.Left)
		return wrong(a.Left, a.Next)
	}
	if err := a.Succeed(r.Context()); err != nil {
		h.cfg.Log.Warn("slidegate: login: some charges stay", "err", err)
	}
	return nil
}

// unavailable logs what the service could not do.
func (h *Handler) unavailable(what string, err error) *Result {
	h.cfg.Log.Error(what, "err", err)
	return unavailable()
}
