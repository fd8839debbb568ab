package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

// protocols holds the client options for each protocol.
var protocols = map[string][]connect.ClientOption{"Connect": nil, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()}}

// serve starts a server that supports HTTP/2, which gRPC needs.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// call calls Ping as the named user. The error is nil or a *connect.Error.
func call(server *httptest.Server, name string, opts ...connect.ClientOption) error {
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+pingProcedure, opts...)
	_, err := client.CallUnary(context.Background(), requestOf(name))
	return err
}

// watch calls Watch as the named user, and reads the stream.
func watch(server *httptest.Server, name string, opts ...connect.ClientOption) error {
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+watchProcedure, opts...)
	stream, err := client.CallServerStream(context.Background(), requestOf(name))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
	}
	return stream.Err()
}

// requestOf returns a request from the named user.
func requestOf(name string) *connect.Request[emptypb.Empty] {
	r := connect.NewRequest(&emptypb.Empty{})
	r.Header().Set("X-Test-User", name)
	return r
}

// TestLimits checks the limits of a user and of an address in each protocol: what is allowed, and
// the code and the Retry-After of the first call that is denied.
func TestLimits(t *testing.T) {
	for protocol, opts := range protocols {
		for kind, ask := range map[string]func(*httptest.Server, string, ...connect.ClientOption) error{"unary": call, "stream": watch} {
			for name, of := range map[string]struct {
				allowed int
				user    func(i int) string
			}{
				"user":    {3, func(int) string { return "alice" }},
				"address": {20, func(i int) string { return fmt.Sprint("user ", i) }},
			} {
				t.Run(protocol+", "+kind+", "+name, func(t *testing.T) {
					server := serve(t, newHandler())
					for i := range of.allowed {
						if err := ask(server, of.user(i), opts...); err != nil {
							t.Fatal(err)
						}
					}
					var denied *connect.Error
					err := ask(server, of.user(of.allowed), opts...)
					if !errors.As(err, &denied) || denied.Code() != connect.CodeResourceExhausted || denied.Meta().Get("Retry-After") == "" {
						t.Errorf("%v", err)
					}
				})
			}
		}
		if err := call(serve(t, newHandler()), "", opts...); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s, without a user: %v", protocol, err)
		}
	}
}

// TestRefusals checks the codes that clients see if the middleware itself responds: without Denied
// after a denial, without a key, and in an outage.
func TestRefusals(t *testing.T) {
	byAddress := new(httplimit.Clients).Key
	for name, of := range map[string]struct {
		limiter httplimit.Limiter
		key     httplimit.Key
		want    connect.Code
	}{
		"denied": {newLimiter("test", window.PerHour(1)), byAddress, connect.CodeUnavailable},
		"no key": {newLimiter("test", window.PerHour(9)), func(*http.Request) string { return "" }, connect.CodeInternal},
		"outage": {down{}, byAddress, connect.CodeUnavailable},
	} {
		limit, err := httplimit.New(httplimit.Config{
			Limiter: of.limiter, Key: of.key, Outage: httplimit.FailClosed, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, handler := newPingServiceHandler()
		server := serve(t, limit.Wrap(handler))
		_ = call(server, "alice") // uses the unit of the limiter that denies
		for protocol, opts := range protocols {
			var refused *connect.Error
			err := call(server, "alice", opts...)
			if !errors.As(err, &refused) || refused.Code() != of.want || refused.Meta().Get("Retry-After") != "" {
				t.Errorf("%s, %s: %v", name, protocol, err)
			}
		}
	}
}

// down is a limiter that is always in an outage.
type down struct{}

func (down) AllowN(context.Context, string, int64) (window.Decision, error) {
	return window.Decision{}, window.ErrOutage
}

func (down) Refund(context.Context, string, window.Decision) error { return window.ErrOutage }
