package loginhttp

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/keys"
)

// Devices uses signed cookies to remember that a user has logged into an account on a device, such
// as a browser. Attempts from known devices have a budget that attackers cannot use up: see
// login.Guard.BeginKnown. The idea comes from OWASP: Slow Down Online Guessing Attacks with Device
// Cookies (https://owasp.org/www-community/Slow_Down_Online_Guessing_Attacks_with_Device_Cookies).
//
// A cookie is signed for one account, and is not valid for any other. It does not replace the
// password. Keep the cookie when a user logs out. Each account has its own cookie, so people can
// share a browser.
//
// Each login sets a cookie with a new ID, which is valid for 365 days. If an older cookie is
// stolen, it therefore has its own budget, and later logins of the owner do not reset that budget,
// as OWASP advises. The stolen cookie stays valid until it expires or the password changes (see
// Config.PasswordChanged).
//
// Create Devices with NewDevices. They are safe for concurrent use.
type Devices struct {
	keys []key
}

const (
	cookieLifetime = 365 * 24 * time.Hour
	maxClockSkew   = time.Hour // how far another process's clock may be ahead
)

// NewDevices returns the Devices of a service. Each secret must have at least 16 random bytes, and
// all processes need the same secrets. The first secret signs new cookies; cookies signed with any
// of the secrets are accepted. To replace a secret, put the new one first. Remove the old one after
// 365 days, or immediately if it has leaked.
func NewDevices(secrets ...[]byte) (*Devices, error) {
	if len(secrets) == 0 {
		return nil, errors.New("slidegate: devices without a secret; give at least 16 random bytes, the same in all processes")
	}
	d := &Devices{}
	for i, secret := range secrets {
		if len(secret) < keys.MinSecret {
			return nil, fmt.Errorf("slidegate: secret %d of the devices has %d bytes; give it at least %d random ones, so that nobody else can sign a cookie", i+1, len(secret), keys.MinSecret)
		}
		k, err := hkdf.Key(sha256.New, secret, nil, "slidegate device cookie", sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("slidegate: secret %d of the devices: %w", i+1, err)
		}
		d.keys = append(d.keys, k)
	}
	return d, nil
}

// Remember sets the cookie that makes this device known for the account. The Handler calls it at
// each login, unless Config.SecondFactor is set. Also call it when the owner has proven their
// identity through a link in an email, so that the owner can log in during an attack.
//
// The cookie is Secure, so it needs HTTPS. Chrome and Firefox also keep it for http://localhost,
// but Safari may not.
func (d *Devices) Remember(w http.ResponseWriter, account string) { d.remember(w, account, time.Now()) }

// remember sets a cookie that is valid for cookieLifetime from now.
func (d *Devices) remember(w http.ResponseWriter, account string, now time.Time) {
	k := d.keys[0]
	http.SetCookie(w, &http.Cookie{
		Name: k.name(account), Value: k.sign(account, rand.Text(), now),
		Path: "/", MaxAge: int(cookieLifetime / time.Second), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

// Known returns the ID of the device and when it was remembered, if the request has a valid cookie
// for the account. Otherwise the ID is "".
func (d *Devices) Known(r *http.Request, account string) (device string, since time.Time) {
	return d.known(r, account, time.Now())
}

// known is like Known, but for the time now.
func (d *Devices) known(r *http.Request, account string, now time.Time) (device string, since time.Time) {
	for _, k := range d.keys {
		cookie, err := r.Cookie(k.name(account))
		if err != nil {
			continue
		}
		if device, since, ok := k.parse(account, cookie.Value); ok && now.Sub(since) > -maxClockSkew && now.Sub(since) < cookieLifetime {
			return device, since
		}
	}
	return "", time.Time{}
}

// key is derived from a secret, so that the secret can also be used for other purposes, such as the
// guard.
type key []byte

// name returns the name of the account's cookie. The prefix __Host- makes browsers accept the
// cookie only from this host itself, and only over HTTPS. The name does not disclose the account.
func (k key) name(account string) string {
	return "__Host-device-" + hex.EncodeToString(k.mac("name", account)[:10])
}

// sign returns the value of a cookie: the version, the time in ms since 1970, the device's ID and
// the signature, separated by dots.
func (k key) sign(account, device string, now time.Time) string {
	signed := strings.Join([]string{"1", strconv.FormatInt(now.UnixMilli(), 10), device}, ".")
	return signed + "." + k.signature(signed, account)
}

// signature returns the signature of the text signed for the account.
func (k key) signature(signed, account string) string {
	return base64.RawURLEncoding.EncodeToString(k.mac(signed, account))
}

// mac returns the HMAC-SHA256 of account and text. It hashes the account first, so that no two
// pairs of account and text have the same input.
func (k key) mac(text, account string) []byte {
	hash, mac := sha256.Sum256([]byte(account)), hmac.New(sha256.New, k)
	_, _ = mac.Write(append(hash[:], text...))
	return mac.Sum(nil)
}

// parse returns what sign was called with. ok is false if value has no valid signature for the
// account.
func (k key) parse(account, value string) (device string, since time.Time, ok bool) {
	end := strings.LastIndexByte(value, '.')
	if end < 0 || !hmac.Equal([]byte(value[end+1:]), []byte(k.signature(value[:end], account))) {
		return "", time.Time{}, false
	}
	parts := strings.Split(value[:end], ".")
	if len(parts) != 3 || parts[0] != "1" {
		return "", time.Time{}, false // from a later version
	}
	ms, err := strconv.ParseInt(parts[1], 10, 64)
	return parts[2], time.UnixMilli(ms), err == nil
}
