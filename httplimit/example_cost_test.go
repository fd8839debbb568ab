package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing/fstest"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// How do I rate limit the tokens of a language model, to 100,000 a minute for each account? A
// request is charged an estimate: the tokens in its prompt and in the longest answer. When the
// answer is complete, the handler reports the actual number.
func ExampleSetCost() {
	limiter, err := window.NewLocal(window.Config{Name: "tokens", Limits: []window.Limit{window.PerMinute(100_000)}})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Key:     httplimit.Header("X-Account"), // which your authentication sets
		Outage:  httplimit.FailClosed,
		Cost: func(r *http.Request) int64 {
			return max(0, r.ContentLength)/4 + 8_000 // a token has about four bytes
		},
		CostAfter: func(u httplimit.Used) int64 { return u.Units },
	})
	if err != nil {
		panic(err)
	}
	handler := limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, "42")         // here, call the model and stream its answer
		httplimit.SetCost(r.Context(), 1250) // the tokens that the model says it used
	}))

	for range 3 {
		r, w := httptest.NewRequest(http.MethodPost, "/completions", nil), httptest.NewRecorder()
		r.Header.Set("X-Account", "17")
		handler.ServeHTTP(w, r)
		s, _ := limiter.Inspect(context.Background(), "header X-Account 17")
		fmt.Println(w.Code, w.Header().Get("RateLimit"), s.Limits[0].Used, "tokens used")
	}
	// Output:
	// 200 "100000/1m";r=92000 1250 tokens used
	// 200 "100000/1m";r=90750 2500 tokens used
	// 200 "100000/1m";r=89500 3750 tokens used
}

// How do I limit the bytes that a client downloads, to 10 MB an hour? A size is often unknown
// before it is sent, so a request is charged one byte at first. A download that has started runs to
// its end. Then the client is denied until enough bytes are an hour old.
func ExampleConfig_costAfter() {
	limiter, err := window.NewLocal(window.Config{Name: "downloads", Limits: []window.Limit{window.PerHour(10_000_000)}})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter:   limiter,
		Key:       httplimit.Clients{}.Key,
		Outage:    httplimit.FailOpen,
		CostAfter: func(u httplimit.Used) int64 { return u.Bytes },
	})
	if err != nil {
		panic(err)
	}
	files := fstest.MapFS{"film": {Data: make([]byte, 6_000_000)}} // or os.DirFS("films")
	handler := limit.Wrap(http.FileServerFS(files))

	for range 3 {
		r, w := httptest.NewRequest(http.MethodGet, "/film", nil), httptest.NewRecorder()
		r.RemoteAddr = "198.51.100.7:50000"
		handler.ServeHTTP(w, r)
		s, _ := limiter.Inspect(context.Background(), "198.51.100.7")
		fmt.Println(w.Code, s.Limits[0].Used, "bytes used")
	}
	// Output:
	// 200 6000000 bytes used
	// 200 12000000 bytes used
	// 429 12000000 bytes used
}
