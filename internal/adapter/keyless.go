package adapter

import (
	"context"
	"strings"
)

// KeylessReasons holds the reasons why a request has no key, for the log. The functions that look for
// the key record them in the request's context, so clients never see them.
type KeylessReasons struct{ texts []string }

// contextKey is the context key of the KeylessReasons.
type contextKey struct{}

// CollectKeyless returns a context derived from ctx, and the KeylessReasons to which NoteKeyless adds if called with that
// context.
func CollectKeyless(ctx context.Context) (context.Context, *KeylessReasons) {
	reasons := &KeylessReasons{}
	return context.WithValue(ctx, contextKey{}, reasons), reasons
}

// CollectsKeyless reports whether ctx was derived from one that CollectKeyless returned.
func CollectsKeyless(ctx context.Context) bool {
	_, ok := ctx.Value(contextKey{}).(*KeylessReasons)
	return ok
}

// NoteKeyless adds reason to the KeylessReasons of ctx, if there are any. It returns "", which means that there
// is no key.
func NoteKeyless(ctx context.Context, reason string) string {
	if r, ok := ctx.Value(contextKey{}).(*KeylessReasons); ok {
		r.texts = append(r.texts, reason)
	}
	return ""
}

// String formats the reasons for the log.
func (r *KeylessReasons) String() string {
	if len(r.texts) == 0 {
		return "the Key returned an empty string"
	}
	return strings.Join(r.texts, "; ")
}
