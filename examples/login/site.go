package main

import (
	"context"
	"crypto/rand"
	"embed"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/secure/precis"

	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/login/loginhttp"
	"github.com/slidegate/slidegate/window"
)

//go:embed page.html puzzle.js
var files embed.FS

var page = template.Must(template.ParseFS(files, "page.html"))

// site is a home page for users who have logged in.
type site struct {
	puzzles  puzzles
	sessions sync.Map // accounts by session ID
}

// newSite returns the whole website.
func newSite(guard *login.Guard, once *window.Limiter, secret []byte) (http.Handler, error) {
	s := &site{puzzles: puzzles{secret, once}}
	devices, err := loginhttp.NewDevices(secret)
	if err != nil {
		return nil, err
	}
	form, err := loginhttp.New(loginhttp.Config{
		Guard: guard, Devices: devices, Check: newUsers().check, Success: s.welcome,
		Account: oneName, Page: s.loginPage, Solved: s.puzzles.solved,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/login", form)
	mux.HandleFunc("POST /logout", s.logout)
	mux.HandleFunc("GET /{$}", s.home)
	mux.Handle("GET /puzzle.js", http.FileServerFS(files))
	return http.NewCrossOriginProtection().Handler(mux), nil
}

// oneName returns one name for all spellings of an account (RFC 8265): Alice and alice are the same
// user here.
func oneName(_ context.Context, typed string) (string, error) {
	name, err := precis.UsernameCaseMapped.CompareKey(strings.TrimSpace(typed))
	if err != nil {
		return "", nil //nolint:nilerr // no account can have such a name
	}
	return name, nil
}

// view is what page.html shows.
type view struct {
	User   string // who is logged in
	Result loginhttp.Result
	Puzzle string // to solve before the next attempt
	Zeros  int    // the zero bits that a solution needs
}

// show writes the page.
func show(w http.ResponseWriter, status int, v view) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store") // otherwise the browser might show the page after a logout
	w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
	w.WriteHeader(status)
	_ = page.Execute(w, v) // the client may be gone
}

// loginPage shows the form, the result of the attempt and, if solving one helps, a puzzle.
func (s *site) loginPage(w http.ResponseWriter, _ *http.Request, result loginhttp.Result) {
	v := view{Result: result}
	if result.Challenge {
		v.Puzzle, v.Zeros = s.puzzles.issue(result.Account, time.Now()), zeros
	}
	show(w, result.Status, v)
}

// welcome starts a session, and ends the browser's previous session.
func (s *site) welcome(w http.ResponseWriter, r *http.Request, account string) {
	s.end(r)
	id := rand.Text() // a new ID at each login, so that nobody can know the ID in advance
	s.sessions.Store(id, account)
	setSession(w, id, 0)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// home greets a user, or redirects to the login form.
func (s *site) home(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie("__Host-session"); err == nil {
		if account, ok := s.sessions.Load(cookie.Value); ok {
			show(w, http.StatusOK, view{User: account.(string)})
			return
		}
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// logout ends the session. The device remains known.
func (s *site) logout(w http.ResponseWriter, r *http.Request) {
	s.end(r)
	setSession(w, "", -1)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// end ends the session to which a request belongs.
func (s *site) end(r *http.Request) {
	if cookie, err := r.Cookie("__Host-session"); err == nil {
		s.sessions.Delete(cookie.Value)
	}
}

// setSession sets the session cookie. If maxAge is negative, it deletes the cookie.
func setSession(w http.ResponseWriter, id string, maxAge int) {
	http.SetCookie(w, &http.Cookie{Name: "__Host-session", Value: id, Path: "/", MaxAge: maxAge, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}
