package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	redisstore "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/slidegate/slidegate/goredisgate"
	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// tooManyError is the error for a denied attempt.
type tooManyError struct{ RetryAfter time.Duration }

func (e tooManyError) Error() string { return fmt.Sprintf("retry after %v", e.RetryAfter) }

// attempt makes an attempt on an account. It returns nil if the attempt is allowed.
type attempt func(ctx context.Context, account string) error

// beforeRedisRate returns the code at the beginning of docs/from-redis_rate.md.
func beforeRedisRate(client *redis.Client) attempt {
	limiter := redis_rate.NewLimiter(client)

	return func(ctx context.Context, account string) error {
		res, err := limiter.Allow(ctx, account, redis_rate.PerHour(5))
		if err != nil {
			return err
		}
		if res.Allowed == 0 {
			return tooManyError{res.RetryAfter}
		}
		return nil
	}
}

// afterRedisRate returns the same code, migrated to Slidegate.
func afterRedisRate(client *redis.Client) (attempt, error) {
	conn := goredisgate.On(client) // the same client
	limiter, err := window.New(conn, window.Config{Name: "login", Limits: []window.Limit{window.PerHour(5)}})
	if err != nil {
		return nil, err
	}

	return func(ctx context.Context, account string) error {
		d, err := limiter.Allow(ctx, account)
		if err != nil {
			return err
		}
		if !d.Allowed {
			return tooManyError{d.RetryAfter}
		}
		return nil
	}, nil
}

// beforeUlule returns the code at the beginning of docs/from-ulule.md.
func beforeUlule(client *redis.Client, mux http.Handler) (http.Handler, error) {
	rate, err := ulule.NewRateFromFormatted("5-H")
	if err != nil {
		return nil, err
	}
	store, err := redisstore.NewStoreWithOptions(client, ulule.StoreOptions{Prefix: "api"})
	if err != nil {
		return nil, err
	}
	return stdlib.NewMiddleware(ulule.New(store, rate)).Handler(mux), nil
}

// beforeThrottled returns the code at the beginning of docs/from-throttled.md.
func beforeThrottled(client *redis.Client, mux http.Handler) (http.Handler, error) {
	store, err := goredisstore.NewCtx(client, "api:")
	if err != nil {
		return nil, err
	}
	quota := throttled.RateQuota{MaxRate: throttled.PerHour(5), MaxBurst: 4}
	rateLimiter, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return nil, err
	}
	limit := throttled.HTTPRateLimiterCtx{RateLimiter: rateLimiter, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return limit.RateLimit(mux), nil
}

// afterMiddleware returns what both become after migration to Slidegate.
func afterMiddleware(client *redis.Client, mux http.Handler) (http.Handler, error) {
	conn := goredisgate.On(client) // the same client
	limiter, err := window.New(conn, window.Config{Name: "api", Limits: []window.Limit{window.PerHour(5)}})
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter:       limiter,
		Key:           httplimit.Clients{}.Key,
		Outage:        httplimit.FailOpen,
		LegacyHeaders: true, // X-RateLimit-*, for clients that read them
	})
	if err != nil {
		return nil, err
	}
	return limit.Wrap(mux), nil
}

// TestMigration compares each program with its migrated version. Both versions must allow 5 attempts an
// hour, and the pages must state correctly what a client sees.
func TestMigration(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })

	for name, a := range map[string]struct {
		attempt
		wait time.Duration // for the sixth attempt
	}{
		"redis_rate": {beforeRedisRate(client), 12 * time.Minute},
		"window":     {must(afterRedisRate(client)), time.Hour},
	} {
		for range 5 {
			if err := a.attempt(t.Context(), "alice"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		var denied tooManyError
		if !errors.As(a.attempt(t.Context(), "alice"), &denied) || !about(denied.RetryAfter, a.wait) {
			t.Errorf("%s: the sixth attempt has to wait %v, want %v", name, denied.RetryAfter, a.wait)
		}
	}

	mux := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	in := func(d time.Duration) string { return fmt.Sprint(int(d.Seconds())) }
	at := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
	for name, m := range map[string]struct {
		http.Handler
		retryAfter, reset string // approximately, in seconds
	}{
		"ulule":     {must(beforeUlule(client, mux)), "", at(time.Hour)},
		"throttled": {must(beforeThrottled(client, mux)), in(12 * time.Minute), in(time.Hour)},
		"httplimit": {must(afterMiddleware(client, mux)), in(time.Hour), at(time.Hour)},
	} {
		for n := range 6 {
			r, w := httptest.NewRequest(http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
			r.RemoteAddr = "198.51.100.7:50000"
			m.ServeHTTP(w, r)
			if want := []int{200, 200, 200, 200, 200, 429}[n]; w.Code != want {
				t.Errorf("%s: request %d has status %d, want %d", name, n+1, w.Code, want)
			}
			h := w.Header()
			if n == 5 && (!seconds(h.Get("Retry-After"), m.retryAfter) || !seconds(h.Get("X-RateLimit-Reset"), m.reset) ||
				h.Get("X-RateLimit-Limit") != "5" || h.Get("X-RateLimit-Remaining") != "0") {
				t.Errorf("%s: %v", name, h)
			}
		}
	}
}

// about reports whether a and b differ by at most a minute.
func about(a, b time.Duration) bool { return (a - b).Abs() <= time.Minute }

// seconds reports whether a and b are both empty, or both roughly the same number of seconds.
func seconds(a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	return about(must(time.ParseDuration(a+"s")), must(time.ParseDuration(b+"s")))
}

// TestMigrationPages checks that the pages for users of other libraries quote the code in this
// file.
func TestMigrationPages(t *testing.T) {
	code := "\n" + withoutTabs(page(t, "bench", "migration_test.go"))
	for _, name := range []string{"redis_rate", "ulule", "throttled"} {
		text := page(t, "docs", "from-"+name+".md")
		for _, s := range regexp.MustCompile("(?s)```go\n(.*?\n)```\n").FindAllStringSubmatch(text, -1) {
			for part := range strings.SplitSeq(s[1], "...\n") {
				if !strings.Contains(code, "\n"+withoutTabs(part)) {
					t.Errorf("docs/from-%s.md quotes what is not in migration_test.go:\n%s", name, part)
				}
			}
		}
	}
}

// withoutTabs removes tabs from the start of each line.
func withoutTabs(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
}
