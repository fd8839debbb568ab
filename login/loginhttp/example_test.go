package loginhttp_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/slidegate/slidegate/login"
	"github.com/slidegate/slidegate/login/loginhttp"
)

// How do I protect a login form against brute force? After five wrong passwords, even the right one
// is refused. A browser that has logged in before still gets in.
func Example() {
	guard, err := login.NewLocal(login.Config{Name: "login"}) // or login.New, with a connection to Redis and a Secret
	if err != nil {
		panic(err)
	}
	secret := make([]byte, 32) // for the device cookies; all processes of the service need the same
	_, _ = rand.Read(secret)
	devices, err := loginhttp.NewDevices(secret)
	if err != nil {
		panic(err)
	}
	form, err := loginhttp.New(loginhttp.Config{
		Guard:   guard,
		Devices: devices,
		Check: func(_ context.Context, account, password string) (bool, error) {
			return account == "alice" && password == "correct horse", nil // compare with a password hash instead
		},
		Success: func(w http.ResponseWriter, r *http.Request, _ string) {
			http.Redirect(w, r, "/", http.StatusSeeOther) // start a session first
		},
	})
	if err != nil {
		panic(err)
	}

	logIn := func(password string, cookies []*http.Cookie) []*http.Cookie { // in a service: http.Handle("/login", form)
		body := url.Values{"account": {" Alice"}, "password": {password}}.Encode()
		r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, c := range cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		form.ServeHTTP(w, r)
		fmt.Println(w.Code, http.StatusText(w.Code))
		return w.Result().Cookies()
	}
	laptop := logIn("correct horse", nil)
	for range 5 {
		logIn("letmein", nil)
	}
	logIn("correct horse", nil)
	logIn("correct horse", laptop)
	// Output:
	// 303 See Other
	// 403 Forbidden
	// 403 Forbidden
	// 403 Forbidden
	// 403 Forbidden
	// 403 Forbidden
	// 429 Too Many Requests
	// 303 See Other
}
