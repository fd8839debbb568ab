package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSession checks that a session ends with a logout, which other sites cannot request, and with
// the next login in the same browser. Pages must not be cached.
func TestSession(t *testing.T) {
	guard, once, err := limits("", nil)
	if err != nil {
		t.Fatal(err)
	}
	site, err := newSite(guard, once, []byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string, session *http.Cookie, from string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "https://example.com"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", from)
		if session != nil {
			r.AddCookie(session)
		}
		w := httptest.NewRecorder()
		site.ServeHTTP(w, r)
		return w
	}
	logIn := func(before *http.Cookie) *http.Cookie {
		cookies := ask(http.MethodPost, "/login", "account=alice&password=correct+horse", before, "same-origin").Result().Cookies()
		return cookies[len(cookies)-1]
	}
	statusIs := func(what string, session *http.Cookie, want int) {
		t.Helper()
		home := ask(http.MethodGet, "/", "", session, "none")
		if home.Code != want || want == http.StatusOK && home.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v, want %d", what, home.Code, home.Header(), want)
		}
	}
	first := logIn(nil)
	statusIs("logged in", first, http.StatusOK)
	second := logIn(first)
	statusIs("the session before", first, http.StatusSeeOther)
	ask(http.MethodPost, "/logout", "", second, "cross-site")
	statusIs("another site logs out", second, http.StatusOK)
	ask(http.MethodPost, "/logout", "", second, "same-origin")
	statusIs("logged out", second, http.StatusSeeOther)
}
