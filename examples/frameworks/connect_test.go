package frameworks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/window"
)

const (
	pingProcedure  = "/acme.v1.PingService/Ping"
	watchProcedure = "/acme.v1.PingService/Watch"
)

// newPingServiceHandler returns a path and a handler, like code that protoc-gen-connect-go
// generates. Ping is unary, and Watch sends a stream.
func newPingServiceHandler(opts ...connect.HandlerOption) (path string, handler http.Handler) {
	mux := http.NewServeMux()
	mux.Handle(pingProcedure, connect.NewUnaryHandlerSimple(pingProcedure, func(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
		return &emptypb.Empty{}, nil
	}, opts...))
	mux.Handle(watchProcedure, connect.NewServerStreamHandlerSimple(watchProcedure, func(_ context.Context, _ *emptypb.Empty, s *connect.ServerStream[emptypb.Empty]) error {
		return s.Send(&emptypb.Empty{})
	}, opts...))
	return "/acme.v1.PingService/", mux
}

// errorWriter writes an error in the protocol of the client: Connect, gRPC or gRPC-Web.
var errorWriter = connect.NewErrorWriter()

// tooManyRequests answers a denied call with the code resource_exhausted.
func tooManyRequests(w http.ResponseWriter, r *http.Request, _ window.Decision) {
	err := connect.NewError(connect.CodeResourceExhausted, errors.New("too many requests"))
	_ = errorWriter.Write(w, r, err) // fails if the client has gone
}

// How do I limit the calls of Connect, gRPC and gRPC-Web by IP address?
func Example_connect() {
	limiter := once()
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter, Key: httplimit.Address, Outage: httplimit.FailOpen, Denied: tooManyRequests,
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle(newPingServiceHandler())
	handler := limit.Wrap(mux) // for http.Server

	server := serve(handler)
	defer server.Close()
	fmt.Println(call(server, "alice"))
	fmt.Println(call(server, "bob")) // from the same address
	// Output:
	// <nil>
	// resource_exhausted: too many requests
}

// limitUsers is an interceptor that limits how often each user calls each procedure. It counts a
// stream once, when it opens.
type limitUsers struct{ limiter *window.Limiter }

// check decides on a call of a user, whom an earlier interceptor has verified.
func (l limitUsers) check(ctx context.Context, procedure string) error {
	name, _ := ctx.Value(userKey{}).(string)
	if name == "" {
		return connect.NewError(connect.CodeUnauthenticated, errors.New("nobody has verified the user"))
	}
	d, err := l.limiter.Allow(ctx, procedure+" "+name)
	switch {
	case err != nil: // log err: the client does not need to know it
		return connect.NewError(connect.CodeUnavailable, errors.New("calls cannot be counted at the moment"))
	case !d.Allowed:
		denied := connect.NewError(connect.CodeResourceExhausted, errors.New("too many requests"))
		seconds := (d.RetryAfter + time.Second - 1) / time.Second
		denied.Meta().Set("Retry-After", strconv.Itoa(int(seconds)))
		return denied
	}
	return nil
}

// WrapUnary implements connect.Interceptor.
func (l limitUsers) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := l.check(ctx, req.Spec().Procedure); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (l limitUsers) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := l.check(ctx, conn.Spec().Procedure); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

// WrapStreamingClient implements connect.Interceptor. It limits nothing.
func (l limitUsers) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// How do I limit each user and procedure with an interceptor?
func Example_connectInterceptor() {
	limiter := once()
	mux := http.NewServeMux()
	mux.Handle(newPingServiceHandler(connect.WithInterceptors(
		authenticateCall{}, // in this order
		limitUsers{limiter},
	)))

	server := serve(mux)
	defer server.Close()
	fmt.Println(call(server, "alice"))
	fmt.Println(call(server, "alice"))
	fmt.Println(call(server, "bob"))
	fmt.Println(call(server, ""))
	// Output:
	// <nil>
	// resource_exhausted: too many requests
	// <nil>
	// unauthenticated: who are you?
}

// authenticateCall is an interceptor that puts the user's name into the context.
type authenticateCall struct{}

// userOf returns a context with the user named in the headers.
func userOf(ctx context.Context, h http.Header) (context.Context, error) {
	name := nameOf(&http.Request{Header: h})
	if name == "" {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("who are you?"))
	}
	return context.WithValue(ctx, userKey{}, name), nil
}

func (authenticateCall) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, err := userOf(ctx, req.Header())
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

func (authenticateCall) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, err := userOf(ctx, conn.RequestHeader())
		if err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

func (authenticateCall) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// serve starts a server with HTTP/2, which gRPC needs.
func serve(h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	return server
}

// call calls Ping as a user. The error is nil, or a *connect.Error.
func call(server *httptest.Server, name string, opts ...connect.ClientOption) error {
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+pingProcedure, opts...)
	_, err := client.CallUnary(context.Background(), requestOf(name))
	return err
}

// watch calls Watch as a user, and reads the stream.
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

// requestOf returns a request from a user.
func requestOf(name string) *connect.Request[emptypb.Empty] {
	r := connect.NewRequest(&emptypb.Empty{})
	r.Header().Set("X-Test-User", name)
	return r
}

// protocols are the options of a client for each protocol.
var protocols = map[string][]connect.ClientOption{"Connect": nil, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()}}

// TestConnectProtocols checks the code of denied calls in each protocol, and whether there is a
// Retry-After: with the middleware, with and without Denied, and with the interceptor.
func TestConnectProtocols(t *testing.T) {
	middleware := func(denied func(http.ResponseWriter, *http.Request, window.Decision)) func() *httptest.Server {
		return func() *httptest.Server {
			limit := must(httplimit.New(httplimit.Config{Limiter: once(), Key: httplimit.Address, Outage: httplimit.FailOpen, Denied: denied}))
			_, handler := newPingServiceHandler()
			return serve(limit.Wrap(handler))
		}
	}
	intercepted := func() *httptest.Server {
		_, handler := newPingServiceHandler(connect.WithInterceptors(authenticateCall{}, limitUsers{once()}))
		return serve(handler)
	}
	for protocol, opts := range protocols {
		for kind, ask := range map[string]func(*httptest.Server, string, ...connect.ClientOption) error{"unary": call, "stream": watch} {
			for name, of := range map[string]struct {
				start   func() *httptest.Server
				code    connect.Code
				hasWait bool
			}{
				"Denied":      {middleware(tooManyRequests), connect.CodeResourceExhausted, true},
				"no Denied":   {middleware(nil), connect.CodeUnavailable, false},
				"interceptor": {intercepted, connect.CodeResourceExhausted, true},
			} {
				t.Run(protocol+", "+kind+", "+name, func(t *testing.T) {
					server := of.start()
					defer server.Close()
					if err := ask(server, "alice", opts...); err != nil {
						t.Fatal(err)
					}
					var denied *connect.Error
					if err := ask(server, "alice", opts...); !errors.As(err, &denied) || denied.Code() != of.code || (denied.Meta().Get("Retry-After") != "") != of.hasWait {
						t.Errorf("%v, with %v", err, denied.Meta())
					}
				})
			}
		}
	}
}

// TestConnectRefusals checks the codes that clients see if the middleware itself answers.
func TestConnectRefusals(t *testing.T) {
	for want, cfg := range map[connect.Code]httplimit.Config{
		connect.CodeInternal:    {Key: func(*http.Request) string { return "" }, Limiter: once()},
		connect.CodeUnavailable: {Key: httplimit.Address, Limiter: down{}},
	} {
		cfg.Outage, cfg.Log = httplimit.FailClosed, slog.New(slog.DiscardHandler)
		_, handler := newPingServiceHandler()
		server := serve(must(httplimit.New(cfg)).Wrap(handler))
		for protocol, opts := range protocols {
			if err := call(server, "alice", opts...); connect.CodeOf(err) != want {
				t.Errorf("%s: %v, not %v", protocol, err, want)
			}
		}
		server.Close()
	}
}

// down is a limiter in an outage.
type down struct{}

func (down) AllowN(context.Context, string, int64) (window.Decision, error) {
	return window.Decision{}, window.ErrOutage
}

func (down) Refund(context.Context, string, window.Decision) error { return window.ErrOutage }
