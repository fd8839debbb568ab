package grpclimit_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/grpclimit"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
	"github.com/slidegate/slidegate/windowtest"
)

// TestWrongConfiguration checks that the errors of New state what is wrong, and the remedy.
func TestWrongConfiguration(t *testing.T) {
	const (
		noLimiter = `slidegate: grpclimit has no Limiter; create one with window.New or ar1.New, or set Choose`
		noKey     = `slidegate: grpclimit has no Key, which says who is limited; use grpclimit.Peer, Method or Metadata. The Key is also nil if Metadata got an empty name, or And a nil Key`
	)
	l, peer := frozen("1/1h"), grpclimit.Key(grpclimit.Peer)
	for _, of := range []struct {
		cfg  grpclimit.Config
		want string
	}{
		{grpclimit.Config{}, noLimiter},
		{grpclimit.Config{Limiter: (*window.Limiter)(nil)}, noLimiter},
		{grpclimit.Config{Limiter: l}, noKey},
		{grpclimit.Config{Choose: always(l, nil)}, noKey},
		{grpclimit.Config{Limiter: l, Choose: always(l, nil)}, `slidegate: grpclimit has Limiter and Choose; set only one of them`},
		{grpclimit.Config{Limiter: l, Key: grpclimit.Metadata("")}, noKey},
		{grpclimit.Config{Limiter: l, Key: peer.And(nil)}, noKey},
		{grpclimit.Config{Limiter: l, Key: grpclimit.Key(nil).And(peer)}, noKey},
		{grpclimit.Config{Limiter: l, Key: peer}, `slidegate: grpclimit has the Outage ""; choose "open" to let calls pass while the limiter does not answer, or "closed" to refuse them`},
		{grpclimit.Config{Limiter: l, Key: peer, Outage: "Open"}, `slidegate: grpclimit has the Outage "Open"; choose "open" to let calls pass while the limiter does not answer, or "closed" to refuse them`},
	} {
		if i, err := grpclimit.New(of.cfg); i != nil || err == nil || err.Error() != of.want {
			t.Errorf("%v\nnot: %s", err, of.want)
		}
	}
}

// TestCost checks that a call costs as many units as Cost returns, and that a call that costs
// nothing is not limited.
func TestCost(t *testing.T) {
	var n int64
	l := frozen("5/1h")
	c := serverSide(t, interceptor(grpclimit.Config{Limiter: l, Cost: func(_ context.Context, method string, request any) int64 {
		if (request == nil) != strings.HasSuffix(method, "/Watch") {
			t.Errorf("%s has the request %v", method, request)
		}
		return n
	}}))
	for _, of := range []struct {
		call       call
		cost, used int64
		code       codes.Code
	}{
		{unary, 2, 2, codes.OK},
		{stream, 3, 5, codes.OK},
		{unary, 1, 5, codes.ResourceExhausted},
		{stream, 0, 5, codes.OK},
	} {
		n = of.cost
		if _, err := of.call(t.Context(), c); status.Code(err) != of.code || used(t, l, "everybody") != of.used {
			t.Errorf("%d units: %v, %d used", of.cost, err, used(t, l, "everybody"))
		}
	}
}

// TestOutage checks that while Redis is down, calls pass if Outage is FailOpen, and fail with
// Unavailable and RetryInfo if it is FailClosed. Each interceptor logs one line.
func TestOutage(t *testing.T) {
	l := must(window.New(windowtest.Down(), window.Config{Name: "calls", Limits: parsed("9/1h")}))
	eachKind(t, func(t *testing.T, call call) {
		for outage, want := range map[grpclimit.Outage]struct {
			code  codes.Code
			after time.Duration
		}{
			grpclimit.FailOpen:   {codes.OK, 0},
			grpclimit.FailClosed: {codes.Unavailable, time.Second},
		} {
			var log logRecorder
			c := serverSide(t, interceptor(grpclimit.Config{Limiter: l, Outage: outage, Log: log.logger()}))
			for range 3 {
				_, err := call(t.Context(), c)
				if after, _ := details(err); status.Code(err) != want.code || after != want.after {
					t.Errorf("%s: %v, %v", outage, err, after)
				}
			}
			log.check(t, `level=ERROR msg="slidegate: the limiter cannot decide" outage=`+string(outage)+" explained=true\n")
		}
	})
}

// TestFallback checks that while Redis is down, the Fallback's limits apply even if Outage is
// FailOpen, and that one line is logged.
func TestFallback(t *testing.T) {
	l := must(window.New(windowtest.Down(), window.Config{Name: "calls", Limits: parsed("9/1h"), Fallback: frozen("1/1d")}))
	var log logRecorder
	c := serverSide(t, interceptor(grpclimit.Config{Limiter: l, Outage: grpclimit.FailOpen, Log: log.logger()}))
	if _, err := unary(t.Context(), c); err != nil {
		t.Error(err)
	}
	_, err := stream(t.Context(), c)
	after, limits := details(err)
	if status.Code(err) != codes.ResourceExhausted || after != 24*time.Hour || !slices.Equal(limits, []string{"1/1d"}) {
		t.Errorf("%v, %v, %v", err, after, limits)
	}
	log.check(t, `level=WARN msg="slidegate: the limiter's Fallback decides, by its own limits" explained=true`+"\n")
}

// TestRefusals checks that a call that can never pass fails with InvalidArgument, and that nothing
// makes clients retry it.
func TestRefusals(t *testing.T) {
	cost := func(n int64) func(context.Context, string, any) int64 {
		return func(context.Context, string, any) int64 { return n }
	}
	for name, cfg := range map[string]grpclimit.Config{
		"no key":     {Key: grpclimit.Metadata("api-key")},
		"negative":   {Cost: cost(-1)},
		"too costly": {Cost: cost(2)},
	} {
		eachKind(t, func(t *testing.T, call call) {
			var log logRecorder
			cfg.Limiter, cfg.Outage, cfg.Log = frozen("1/1h"), grpclimit.FailOpen, log.logger()
			trailer, err := call(t.Context(), serverSide(t, interceptor(cfg)))
			after, _ := details(err)
			if status.Code(err) != codes.InvalidArgument || after != 0 || trailer.Get("grpc-retry-pushback-ms") != nil {
				t.Errorf("%s: %v, %v, %v", name, err, after, trailer)
			}
			if name != "no key" {
				log.check(t, "")
			}
		})
	}
}

// TestCallerLeaves checks that a caller whose context is done while Redis hangs gets the status of
// the context, that nothing is logged, and that the handler is not called.
func TestCallerLeaves(t *testing.T) {
	s := redistest.Start(t)
	hung := must(window.New(window.On(s.Client(t)), window.Config{Name: redistest.Key(t), Limits: parsed("9/1h"), Timeout: time.Minute}))
	s.Pause(t)
	var log logRecorder
	i := interceptor(grpclimit.Config{Limiter: hung, Outage: grpclimit.FailOpen, Log: log.logger()})
	gone, leave := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, leave)
	late, cancel := context.WithTimeout(t.Context(), 4*time.Millisecond) // too short to notice that Redis hangs
	defer cancel()
	for want, ctx := range map[codes.Code]context.Context{codes.Canceled: gone, codes.DeadlineExceeded: late} {
		if err := direct(ctx, t, i); status.Code(err) != want {
			t.Error(err)
		}
	}
	log.check(t, "")
}

// direct calls the interceptor without a server, because a client would hide the error that the
// interceptor returns.
func direct(ctx context.Context, t *testing.T, i *grpclimit.Interceptor) error {
	_, err := i.UnaryServer(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
		t.Error("the handler was called")
		return nil, nil
	})
	return err
}

// TestRetryPolicy checks that a retry under grpc's retry policy waits as long as the server
// specifies, and not the policy's backoff of an hour. The limiter's clock stands still until the
// retry arrives.
func TestRetryPolicy(t *testing.T) {
	const wait = 50 * time.Millisecond
	const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "3600s",
		"maxBackoff": "3600s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`
	for name, call := range map[string]call{"unary": unary, "stream": stream} {
		t.Run(name, func(t *testing.T) {
			now, attempts := noon, 0
			i := interceptor(grpclimit.Config{Limiter: local(&now, "1/50ms"), Key: func(context.Context, string) string {
				if attempts++; attempts == 3 {
					now = now.Add(wait)
				}
				return "everybody"
			}})
			c := serve(t, limitedBy(i), grpc.WithDefaultServiceConfig(policy))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begin := time.Now()
			for range 2 {
				if _, err := call(ctx, c); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(begin); attempts != 3 || took < wait {
				t.Errorf("%d attempts in %v", attempts, took)
			}
		})
	}
}

// TestKeys checks keys on a real server.
func TestKeys(t *testing.T) {
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api-key", "b")
	for want, key := range map[string]grpclimit.Key{
		"127.0.0.1":                           grpclimit.Peer,
		"metadata api-key b":                  grpclimit.Metadata("Api-Key"),
		"method /grpc.health.v1.Health/Check": grpclimit.Method,
		"18 metadata api-key b 127.0.0.1":     grpclimit.Metadata("api-key").And(grpclimit.Peer),
	} {
		l := frozen("5/1h")
		if _, err := unary(ctx, serverSide(t, interceptor(grpclimit.Config{Limiter: l, Key: key}))); err != nil {
			t.Fatal(err)
		}
		if got := used(t, l, want); got != 1 {
			t.Errorf("%q: %d used", want, got)
		}
	}
}

// TestKeylessReason checks that only the first call without a key is logged, with the reason, and
// that the log contains no value that a client sent.
func TestKeylessReason(t *testing.T) {
	peer := grpclimit.Key(grpclimit.Peer)
	for _, of := range []struct {
		key  grpclimit.Key
		want string
	}{
		{grpclimit.Metadata("api-key"), "the metadata value api-key occurs several times"},
		{grpclimit.Metadata("other"), "the metadata value other is missing or empty"},
		{func(context.Context, string) string { return "" }, "the Key returned an empty string"},
		{grpclimit.Peer, "the connection is not from an IP address"},
		{peer.And(grpclimit.Metadata("api-key")), "the connection is not from an IP address; the metadata value api-key occurs several times"},
	} {
		var log logRecorder
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("api-key", "secret", "api-key", "other"))
		i := interceptor(grpclimit.Config{Limiter: frozen("1/1h"), Key: of.key, Log: log.logger()})
		const said = "the call has no key to count it by: a required metadata value or IP address is missing, or a metadata value occurs several times"
		for range 2 {
			if s := status.Convert(direct(ctx, t, i)); s.Code() != codes.InvalidArgument || s.Message() != said {
				t.Error(s)
			}
		}
		log.check(t, `level=WARN msg="slidegate: calls without a key are refused; only the first is logged" reason="`+of.want+`"`+"\n")
	}
}
