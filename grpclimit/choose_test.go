package grpclimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/grpclimit"
	"github.com/slidegate/slidegate/window"
)

// always returns a function for Config.Choose that always returns l and err.
func always(l grpclimit.Limiter, err error) func(context.Context, string) (grpclimit.Limiter, error) {
	return func(context.Context, string) (grpclimit.Limiter, error) { return l, err }
}

// TestChoose checks that each call is limited by the limiter that Choose returns. The status of a
// denied call contains the exact wait, and names the limit that denied the call. A blocked call must
// fail immediately, without anything that makes clients retry.
func TestChoose(t *testing.T) {
	free := frozen("1/1h@1m", "5/1d")
	plans := map[string]grpclimit.Limiter{"free": free, "pro": must(free.With(parsed("3/1h")...)), "staff": grpclimit.Unlimited, "closed": grpclimit.Blocked}
	c := serverSide(t, interceptor(grpclimit.Config{Choose: func(ctx context.Context, method string) (grpclimit.Limiter, error) {
		if method != "/grpc.health.v1.Health/Check" && method != "/grpc.health.v1.Health/Watch" {
			t.Error(method)
		}
		return plans[metadata.ValueFromIncomingContext(ctx, "plan")[0]], nil
	}}))
	for i, of := range []struct {
		plan   string
		call   call
		code   codes.Code
		after  time.Duration
		limits string
	}{
		{"free", unary, codes.OK, 0, ""},
		{"free", unary, codes.ResourceExhausted, time.Hour, "1/1h"},
		{"pro", stream, codes.OK, 0, ""},
		{"pro", unary, codes.OK, 0, ""},
		{"pro", stream, codes.ResourceExhausted, time.Hour, "3/1h"},
		{"staff", unary, codes.OK, 0, ""},
		{"staff", stream, codes.OK, 0, ""},
		{"closed", unary, codes.PermissionDenied, 0, ""},
		{"closed", stream, codes.PermissionDenied, 0, ""},
	} {
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "plan", of.plan), 30*time.Minute)
		trailer, err := of.call(ctx, c)
		cancel()
		after, limits := details(err)
		pushed := trailer.Get("grpc-retry-pushback-ms") != nil
		if status.Code(err) != of.code || after != of.after || strings.Join(limits, " ") != of.limits || pushed != (of.after > 0) {
			t.Errorf("%d: %v, %v, %v, %v", i, err, after, limits, trailer)
		}
	}
}

// TestChooseFails checks that a call for which there is no limiter fails or passes, as in an
// outage, and that the reason is logged: an error from Choose once, because it can affect all
// calls, and a programming mistake each time.
func TestChooseFails(t *testing.T) {
	const once = `level=ERROR msg="slidegate: the limiter cannot decide" outage=`
	const each = `level=ERROR msg="slidegate: a call got no decision" outage=`
	for _, of := range []struct {
		choose func(context.Context, string) (grpclimit.Limiter, error)
		line   string
		lines  int
	}{
		{always(nil, errors.Join(errors.New("no row"), window.ErrExceedsLimit)), once, 1},
		{always(nil, nil), each, 2},
		{always((*window.Limiter)(nil), nil), each, 2},
	} {
		for outage, want := range map[grpclimit.Outage]codes.Code{grpclimit.FailOpen: codes.OK, grpclimit.FailClosed: codes.Unavailable} {
			var log logRecorder
			c := serverSide(t, interceptor(grpclimit.Config{Choose: of.choose, Outage: outage, Log: log.logger()}))
			for range 2 {
				if _, err := unary(t.Context(), c); status.Code(err) != want {
					t.Error(err)
				}
			}
			log.check(t, strings.Repeat(of.line+string(outage)+"\n", of.lines))
		}
	}
}

// TestSkip checks that health checks are not limited, and that no other function in Config is
// called for them.
func TestSkip(t *testing.T) {
	eachKind(t, func(t *testing.T, call call) {
		c := serverSide(t, interceptor(grpclimit.Config{Limiter: frozen("1/1h"), Skip: grpclimit.HealthChecks, Key: func(_ context.Context, method string) string {
			t.Errorf("a function was called for %s", method)
			return "everybody"
		}}))
		for range 3 {
			if _, err := call(t.Context(), c); err != nil {
				t.Error(err)
			}
		}
	})
	methods := []string{"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "/grpc.health.v1.HealthCare/Check", "/orders.Orders/Place"}
	limited := slices.DeleteFunc(methods, func(method string) bool { return grpclimit.HealthChecks(t.Context(), method) })
	if len(limited) != 2 {
		t.Error(limited)
	}
}
