package adapter

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
)

// JoinKeys returns the event key of requests that share their limits only if both keys match. It
// consists of the length of one and both keys, so that no other pair has the same. If either key is
// "", so is the result.
func JoinKeys(one, two string) string {
	if one == "" || two == "" {
		return ""
	}
	return strconv.Itoa(len(one)) + " " + one + " " + two
}

// reasonsKey is the context key of the reasons why a request has no key, a *[]string.
type reasonsKey struct{}

// WhyKeyless returns the reasons why a request with the context ctx has no key, for the log. The
// function key looks for the key again, with the context that it is given. Clients never see the
// reasons.
func WhyKeyless(ctx context.Context, key func(context.Context)) string {
	var reasons []string
	key(context.WithValue(ctx, reasonsKey{}, &reasons))
	if len(reasons) == 0 {
		return "the Key returned an empty string"
	}
	return strings.Join(reasons, "; ")
}

// CollectsKeyless reports whether WhyKeyless created ctx or a parent of ctx.
func CollectsKeyless(ctx context.Context) bool { return ctx.Value(reasonsKey{}) != nil }

// NoteKeyless adds a reason to the result of WhyKeyless, if WhyKeyless created ctx. It returns "",
// which means that there is no key.
func NoteKeyless(ctx context.Context, reason string) string {
	if reasons, ok := ctx.Value(reasonsKey{}).(*[]string); ok {
		*reasons = append(*reasons, reason)
	}
	return ""
}

// Keyless logs the first request that has no key. The zero Keyless is ready to use.
type Keyless struct{ once sync.Once }

// Log logs the reason if this is the first request without a key. The log calls all of them
// requests, such as "calls". For ctx and key, see WhyKeyless.
func (k *Keyless) Log(ctx context.Context, log *slog.Logger, requests string, key func(context.Context)) {
	k.once.Do(func() {
		log.Warn("slidegate: "+requests+" without a key are refused; only the first is logged", "reason", WhyKeyless(ctx, key))
	})
}
