// Package keyless collects the reasons why a request has no key, for the log. The functions that
// look for the key record their reasons in the request's context, so clients never see them.
package keyless

import (
	"context"
	"strings"
)

// Reasons holds the reasons why a request has no key.
type Reasons struct{ texts []string }

// contextKey is the context key of the Reasons.
type contextKey struct{}

// Collect returns a context derived from ctx, and the Reasons to which Note adds if called with that
// context.
func Collect(ctx context.Context) (context.Context, *Reasons) {
	reasons := &Reasons{}
	return context.WithValue(ctx, contextKey{}, reasons), reasons
}

// Collects reports whether ctx was derived from one that Collect returned.
func Collects(ctx context.Context) bool {
	_, ok := ctx.Value(contextKey{}).(*Reasons)
	return ok
}

// Note adds reason to the Reasons of ctx, if there are any. It returns "", which means that there
// is no key.
func Note(ctx context.Context, reason string) string {
	if r, ok := ctx.Value(contextKey{}).(*Reasons); ok {
		r.texts = append(r.texts, reason)
	}
	return ""
}

// String formats the reasons for the log.
func (r *Reasons) String() string {
	if len(r.texts) == 0 {
		return "the Key returned an empty string"
	}
	return strings.Join(r.texts, "; ")
}
