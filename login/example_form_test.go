package login_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/secure/precis"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/login"
)

// A form is a login form with a guard.
type form struct {
	guard  *login.Guard
	log    *slog.Logger
	secret []byte // of the cookies of devices

	// check looks up the account and compares the password. For an account that does not exist it compares with some other hash, so that it takes as long. An
	// error is that it could not find out; a wrong password is none.
	check func(account, password string) (right bool, err error)
}

func (f form) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	account, err := precis.UsernameCaseMapped.CompareKey(strings.TrimSpace(r.PostFormValue("account"))) // Alice and alice are one
	if err != nil || account == "" {
		f.refuse(w) // nobody can have such a name
		return
	}
	a, err := f.begin(r, account)
	if err != nil {
		f.log.Error("login: cannot decide", "err", err)
		http.Error(w, "Nobody can log in at the moment. Please try again soon.", http.StatusServiceUnavailable)
		return
	}
	if !a.Allowed {
		f.log.Warn("login: denied", "from", r.RemoteAddr, "budget", a.Denied, "retry_after", a.RetryAfter.Round(time.Second))
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(a.RetryAfter.Seconds()))))
		http.Error(w, "Too many attempts. Please wait, or reset your password.", http.StatusTooManyRequests)
		return
	}
	f.try(w, r, a, account)
}

// begin asks the guard. It knows a device by a cookie that was set when somebody logged into this account there.
func (f form) begin(r *http.Request, account string) (*login.Attempt, error) {
	client, err := httplimit.ClientAddr(r) // behind a proxy: Addr of httplimit.ClientsBehind, ClientsByHops or ClientsIn
	if err != nil {
		return nil, err
	}
	if device := f.device(r, account); device != "" {
		return f.guard.BeginKnown(r.Context(), account, client, device)
	}
	return f.guard.Begin(r.Context(), account, client)
}

// device is the name of a known one, or empty.
func (f form) device(r *http.Request, account string) string {
	cookie, err := r.Cookie("device")
	if err != nil {
		return ""
	}
	device, mac, _ := strings.Cut(cookie.Value, ".")
	if !hmac.Equal([]byte(mac), []byte(f.sign(account, device))) {
		return ""
	}
	return device
}

// try looks at the password, as the guard allows it.
func (f form) try(w http.ResponseWriter, r *http.Request, a *login.Attempt, account string) {
	right, err := f.check(account, r.PostFormValue("password"))
	switch {
	case err != nil:
		f.log.Error("login: cannot check", "err", err, "cancel", a.Cancel(r.Context()))
		http.Error(w, "Nobody can log in at the moment. Please try again soon.", http.StatusServiceUnavailable)
	case !right:
		f.log.Info("login: failed", "from", r.RemoteAddr, "left", a.Left)
		f.refuse(w)
	default:
		if err := a.Succeed(r.Context()); err != nil {
			f.log.Warn("login: some charges stay", "err", err)
		}
		if f.device(r, account) == "" {
			device := rand.Text()
			http.SetCookie(w, &http.Cookie{
				Name: "device", Value: device + "." + f.sign(account, device),
				MaxAge: 365 * 24 * 3600, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
			})
		}
		_, _ = fmt.Fprintln(w, "Welcome.")
	}
}

// refuse says the same whether the account exists or not.
func (f form) refuse(w http.ResponseWriter) {
	http.Error(w, "Account or password is wrong.", http.StatusForbidden)
}

// sign is what proves that a cookie is ours, and for this account.
func (f form) sign(account, device string) string {
	mac := hmac.New(sha256.New, f.secret)
	_, _ = fmt.Fprintf(mac, "%q %q", account, device)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// A whole login form: five wrong passwords, then the right one is not looked at. The owner's own device still gets in.
func Example_form() {
	guard, err := login.NewLocal(login.Config{Name: "login"}) // or login.New with a rueidis client and a Secret
	if err != nil {
		fmt.Println(err)
		return
	}
	f := form{
		guard: guard, secret: []byte("random bytes that all servers share"),
		check: func(account, password string) (bool, error) {
			return account == "alice" && password == "correct horse", nil
		},
		log: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: steady})),
	}
	laptop := post(f, "192.0.2.1:50000", "correct horse", nil)
	for range 5 {
		post(f, "198.51.100.7:50000", "letmein", nil)
	}
	post(f, "198.51.100.7:50000", "correct horse", nil)
	post(f, "198.51.100.7:50000", "correct horse", laptop)
	// Output:
	// 200 Welcome.
	// level=INFO msg="login: failed" from=198.51.100.7:50000 left=4
	// 403 Account or password is wrong.
	// level=INFO msg="login: failed" from=198.51.100.7:50000 left=3
	// 403 Account or password is wrong.
	// level=INFO msg="login: failed" from=198.51.100.7:50000 left=2
	// 403 Account or password is wrong.
	// level=INFO msg="login: failed" from=198.51.100.7:50000 left=1
	// 403 Account or password is wrong.
	// level=INFO msg="login: failed" from=198.51.100.7:50000 left=0
	// 403 Account or password is wrong.
	// level=WARN msg="login: denied" from=198.51.100.7:50000 budget=pair retry_after=1m0s
	// 429 Too many attempts. Please wait, or reset your password.
	// 200 Welcome.
}

// post sends the form, and returns the cookies.
func post(f form, from, password string, cookies []*http.Cookie) []*http.Cookie {
	body := url.Values{"account": {" Alice"}, "password": {password}}.Encode()
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = from
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	fmt.Print(w.Code, " ", w.Body)
	return w.Result().Cookies()
}

// steady makes the log the same each time.
func steady(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey:
		return slog.Attr{}
	case "retry_after":
		return slog.Duration(a.Key, a.Value.Duration().Round(time.Minute))
	}
	return a
}
