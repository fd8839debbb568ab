package main

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
)

// userKey is the context key of the user's name.
type userKey struct{}

// authenticate is an interceptor that puts the user's name into the context. A real program would
// verify a session or a token.
type authenticate struct{}

// userOf returns a context with the user named in the headers.
func userOf(ctx context.Context, h http.Header) (context.Context, error) {
	name := h.Get("X-Test-User")
	if name == "" {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("who are you?"))
	}
	return context.WithValue(ctx, userKey{}, name), nil
}

// WrapUnary implements connect.Interceptor.
func (authenticate) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, err := userOf(ctx, req.Header())
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (authenticate) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, err := userOf(ctx, conn.RequestHeader())
		if err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

// WrapStreamingClient implements connect.Interceptor. It does not do anything.
func (authenticate) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}
