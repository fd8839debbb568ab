// Package keyless passes the reasons why a request has no key from the functions that look for the
// key to the log. They travel in the context of the request, so clients never see them.
package keyless

import (
	"context"
	"strings"
)

// Reasons records why a request has no key.
type Reasons struct {
	Several bool // a header has several values
	texts   []string
}

// contextKey is the key of the Reasons in a context.
type contextKey struct{}

// Collect returns a context, and the Reasons that Note and NoteSeveral add to under it.
func Collect(ctx context.Context) (context.Context, *Reasons) {
	reasons := &Reasons{}
	return context.WithValue(ctx, contextKey{}, reasons), reasons
}

// Collects reports whether Reasons are collected under the context.
func Collects(ctx context.Context) bool {
	_, ok := ctx.Value(contextKey{}).(*Reasons)
	return ok
}

// Note adds a reason if reasons are collected. It returns "", which means that there is no key.
func Note(ctx context.Context, reason string) string {
	if r, ok := ctx.Value(contextKey{}).(*Reasons); ok {
		r.texts = append(r.texts, reason)
	}
	return ""
}

// NoteSeveral adds the reason that a header has several values, and returns "".
func NoteSeveral(ctx context.Context, reason string) string {
	if r, ok := ctx.Value(contextKey{}).(*Reasons); ok {
		r.Several = true
	}
	return Note(ctx, reason)
}

// String formats the reasons for the log.
func (r *Reasons) String() string {
	if len(r.texts) == 0 {
		return "the Key returned an empty string"
	}
	return strings.Join(r.texts, "; ")
}
