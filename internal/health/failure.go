// Package health knows what fails and why: the errors of requests that Redis could not answer, with
// their reasons and remedies, circuit breakers, and outages. It does not know about queues or clients.
package health

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slidegate/slidegate/internal/connection"
)

// A Failure is the error for a request that Redis could not answer.
type Failure struct {
	Name    string // of the limiter
	Key     string // of the request; "" if the error concerns several requests
	Counted error  // ErrOutage or ErrUncertain
	Cause   error  // the reason; it contains no key
}

// FailureOf returns the Failure for a request for key, which starts with the limiter's name.
func FailureOf(key string, counted, cause error) *Failure {
	name, _, _ := strings.Cut(key, ":{")
	return &Failure{name, key, counted, cause}
}

// Error states whether anything was counted, the cause, and the remedy. It is one line, even if the
// client's error has several.
func (f *Failure) Error() string {
	text := strings.ReplaceAll(fmt.Sprintf("%v: %v", f.Counted, f.Cause), "\n", "; ")
	if f.Key != "" {
		text = "key " + f.Key + ": " + text
	}
	if f.Counted == ErrOutage { //nolint:errorlint // it is one of two values
		text += "; " + f.remedy()
	}
	return text
}

// Unwrap returns Counted and Cause.
func (f *Failure) Unwrap() []error { return []error{f.Counted, f.Cause} }

// Reason returns the reason for the failure, or "" if f is nil.
func (f *Failure) Reason() string {
	if f == nil {
		return ""
	}
	return reasonOf(f.Cause)
}

// Err returns f as an error, or a nil error if f is nil.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	return f
}

// remedy returns what a user can do about a request that was not counted.
func (f *Failure) remedy() string {
	if remedy := connection.Remedy(f.Cause); remedy != "" {
		return remedy
	}
	switch f.Reason() {
	case ReasonNoPerm:
		return fmt.Sprintf("give its user ~%s:* and the commands of https://github.com/slidegate/slidegate/blob/main/docs/keys.md#the-acl-user", f.Name)
	case ReasonNoAuth:
		return "give the client the user and the password of this Redis"
	case ReasonOOM:
		return "raise maxmemory, and leave maxmemory-policy at noeviction"
	case ReasonMisconf:
		return "fix what the server log says about saving"
	case ReasonReadOnly:
		return "connect to the master, or through Sentinel or the cluster nodes"
	case ReasonLua:
		return "use a server that runs Lua scripts: Redis, or Valkey with its module lua"
	}
	return "try again later, or decide without it"
}

// FailureIn returns the Failure in err, without its key, or nil if err contains none.
func FailureIn(err error) *Failure {
	if err == nil {
		return nil // avoids an allocation
	}
	var f *Failure
	if !errors.As(err, &f) || f.Key == "" {
		return f
	}
	return &Failure{f.Name, "", f.Counted, f.Cause}
}
