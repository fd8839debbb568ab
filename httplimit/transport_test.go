package httplimit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/httplimit"
	"github.com/slidegate/slidegate/inflight"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/pace"
	"github.com/slidegate/slidegate/window"
	"github.com/slidegate/slidegate/windowtest"
)

// TestTransportConfig checks which configurations NewTransport rejects, and that the errors state
// the remedy.
func TestTransportConfig(t *testing.T) {
	l := turns("1/1ms")
	for want, cfg := range map[string]httplimit.TransportConfig{
		"Places; create them with pace.New and inflight.New": {Outage: httplimit.FailOpen},
		`Outage ""`:                      {Turns: l},
		`Outage "maybe"`:                 {Turns: l, Outage: "maybe"},
		"MaxPause of -1s":                {Turns: l, Outage: httplimit.FailOpen, MaxPause: -time.Second},
		"MaxPause of 25h0m0s":            {Turns: l, Outage: httplimit.FailOpen, MaxPause: 25 * time.Hour},
		"uninitialized Limiter as Turns": {Turns: &pace.Limiter{}, Outage: httplimit.FailOpen},
		"Places; create it with pace.New or inflight.New": {Places: &inflight.Limiter{}, Outage: httplimit.FailOpen},
		"a nil *http.Transport":                           {Turns: l, Outage: httplimit.FailOpen, Base: (*http.Transport)(nil)},
	} {
		if _, err := httplimit.NewTransport(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

// TestTransportEvent checks that requests to the same host share turns, whatever the case of the
// host's name.
func TestTransportEvent(t *testing.T) {
	l := turns("1/1h")
	base := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	client := must(httplimit.NewTransport(httplimit.TransportConfig{Turns: l, Base: base, Outage: httplimit.FailClosed}))
	for _, url := range []string{"http://API.example.com/a", "https://other.example.com:8443/b"} {
		if response, err := client.RoundTrip(request(t, http.MethodGet, url, nil)); err != nil || response.Body.Close() != nil {
			t.Error(err)
		}
	}
	for _, event := range []string{"api.example.com", "other.example.com:8443"} {
		if s := must(l.Inspect(t.Context(), event)); s.Limits[0].Used != 1 {
			t.Errorf("%s has %d turns", event, s.Limits[0].Used)
		}
	}
}

// TestTransportClosesBodies checks that the request's body is closed whenever RoundTrip fails, and
// that nothing is sent before the request's turn.
func TestTransportClosesBodies(t *testing.T) {
	lost := must(pace.New(windowtest.Down(), pace.Config{Name: "turns", Limits: limits("1/1h")}))
	noPlaces := must(inflight.New(windowtest.Down(), inflight.Config{Name: "places", Max: 1}))
	busy := turns("1/1h")
	_ = busy.Wait(t.Context(), here)
	full := places(1)
	_ = must(full.Acquire(t.Context(), here))
	gone, leave := context.WithCancel(t.Context())
	leave()
	short, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	briefly, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	errBase := errors.New("the base fails")
	for name, test := range map[string]struct {
		cfg  httplimit.TransportConfig
		ctx  context.Context
		want error
		sent int64
	}{
		"the caller has left":         {httplimit.TransportConfig{Turns: turns("1/1ms")}, gone, context.Canceled, 0},
		"the turn is too late":        {httplimit.TransportConfig{Turns: busy}, short, context.DeadlineExceeded, 0},
		"the same, if open":           {httplimit.TransportConfig{Turns: busy, Outage: httplimit.FailOpen}, short, context.DeadlineExceeded, 0},
		"no place":                    {httplimit.TransportConfig{Places: full, Outage: httplimit.FailOpen}, briefly, context.DeadlineExceeded, 0},
		"an outage":                   {httplimit.TransportConfig{Turns: lost}, t.Context(), pace.ErrOutage, 0},
		"an outage of places":         {httplimit.TransportConfig{Places: noPlaces}, t.Context(), inflight.ErrOutage, 0},
		"no event":                    {httplimit.TransportConfig{Turns: turns("1/1ms"), Event: func(*http.Request) string { return "" }, Outage: httplimit.FailOpen}, t.Context(), pace.ErrEmptyEvent, 0},
		"the base fails":              {httplimit.TransportConfig{Turns: turns("1/1ms"), Places: places(1)}, t.Context(), errBase, 1},
		"the same, open in an outage": {httplimit.TransportConfig{Turns: lost, Places: noPlaces, Outage: httplimit.FailOpen}, t.Context(), errBase, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var open, sent atomic.Int64
			test.cfg.Base = roundTripper(func(r *http.Request) (*http.Response, error) {
				sent.Add(1)
				return nil, errors.Join(errBase, r.Body.Close())
			})
			r := request(t, http.MethodPost, "http://x", nil).WithContext(test.ctx)
			r.Body = tracked(strings.NewReader("body"), &open)
			response, err := transport(test.cfg).RoundTrip(r) //nolint:bodyclose // there is none
			if response != nil || !errors.Is(err, test.want) || open.Load() != 0 || sent.Load() != test.sent {
				t.Errorf("%v, %v, %d open, %d sent", response, err, open.Load(), sent.Load())
			}
			if p := test.cfg.Places; p != nil && p != full && p != noPlaces {
				checkHeld(t, p, here, 0)
			}
		})
	}
}

// TestTransportMistakes checks that a request without a URL returns an error, and that the body is
// closed even if Event panics.
func TestTransportMistakes(t *testing.T) {
	mistake := func(*http.Request) string { panic("a mistake") }
	byHost := must(httplimit.NewTransport(httplimit.TransportConfig{Turns: turns("1/1ms"), Outage: httplimit.FailOpen}))
	for want, client := range map[string]http.RoundTripper{
		pace.ErrEmptyEvent.Error(): byHost,
		"a mistake":                transport(httplimit.TransportConfig{Turns: turns("1/1ms"), Event: mistake}),
	} {
		var open atomic.Int64
		r := &http.Request{Method: http.MethodPost, Body: tracked(strings.NewReader("body"), &open)}
		var err any
		func() {
			defer func() { err = cmp.Or(recover(), err) }()
			_, err = client.RoundTrip(r) //nolint:bodyclose // it fails
		}()
		if !strings.Contains(fmt.Sprint(err), want) || open.Load() != 0 {
			t.Errorf("%v, want %s, %d open", err, want, open.Load())
		}
	}
}

// TestTransportLogsOutages checks that an outage of the turns is logged once, although the places
// are available.
func TestTransportLogsOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		client := transport(httplimit.TransportConfig{
			Places: places(1), Turns: must(pace.New(windowtest.Down(), pace.Config{Name: "api", Limits: limits("1/1ms")})),
			Outage: httplimit.FailOpen, Log: log.loggerOf("level", "limiter"),
			Base: roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{Body: http.NoBody}, nil }),
		})
		for range 3 {
			if _, err := client.RoundTrip(request(t, http.MethodGet, "http://x", nil)); err != nil { //nolint:bodyclose // there is none
				t.Error(err)
			}
			<-time.After(time.Minute)
		}
		if log.String() != "level=ERROR limiter=api\n" {
			t.Error(&log)
		}
	})
}

// TestTransportFallback checks that the log reports once that the Fallback of Places decides, and why.
func TestTransportFallback(t *testing.T) {
	var log logBuffer
	client := transport(httplimit.TransportConfig{
		Places: must(inflight.New(windowtest.Down(), inflight.Config{Name: "jobs", Max: 1, Fallback: places(1)})),
		Log:    log.loggerOf("level", "limiter", "err"),
		Base:   roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{Body: http.NoBody}, nil }),
	})
	for range 3 {
		if _, err := client.RoundTrip(request(t, http.MethodGet, "http://x", nil)); err != nil { //nolint:bodyclose // there is none
			t.Error(err)
		}
	}
	log.explains(t, "jobs")
}

// TestTransportOutage checks that one line is logged when an outage starts, and one when it ends.
func TestTransportOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var log logBuffer
	client := transport(httplimit.TransportConfig{
		Turns:  must(pace.New(window.On(server.Client(t)), pace.Config{Name: redistest.Key(t), Limits: limits("1/1ms"), Timeout: time.Minute})),
		Outage: httplimit.FailOpen, Log: log.logger(),
		Base: roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{Body: http.NoBody}, nil }),
	})
	ask := func() {
		if _, err := client.RoundTrip(request(t, http.MethodGet, "http://x", nil)); err != nil { //nolint:bodyclose // there is none
			t.Error(err)
		}
	}
	server.Kill(t)
	ask()
	ask()
	server.Restart(t)
	redistest.Eventually(t, "the log reports the end of the outage", func() bool { ask(); return log.String() == lineOutage+lineRecovered })
}

// TestTransportPlace checks that a place is held until the end of the response, however it ends.
func TestTransportPlace(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "fine")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/endless" {
			<-r.Context().Done()
		}
	}))
	defer s.Close()
	for name, test := range map[string]struct {
		path string
		end  func(response *http.Response, leave func())
	}{
		"closed":             {"/endless", func(r *http.Response, _ func()) { _ = r.Body.Close() }},
		"read":               {"/", func(r *http.Response, _ func()) { _, _ = io.ReadAll(r.Body) }},
		"read and closed":    {"/", func(r *http.Response, _ func()) { _, _ = io.ReadAll(r.Body); _ = r.Body.Close(); _ = r.Body.Close() }},
		"left alone":         {"/endless", func(_ *http.Response, leave func()) { leave() }},
		"left while reading": {"/endless", func(r *http.Response, leave func()) { go leave(); _, _ = io.ReadAll(r.Body) }},
	} {
		t.Run(name, func(t *testing.T) {
			l := placesInRedis(t, 1)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			response, err := transport(httplimit.TransportConfig{Places: l}).RoundTrip(request(t, http.MethodGet, s.URL+test.path, nil).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			checkHeld(t, l, here, 1)
			test.end(response, leave)
			awaitFree(t, l, here)
		})
	}
}

// TestTransportNoBody checks that a response without a body holds no place, over HTTP/1.1 and
// HTTP/2.
func TestTransportNoBody(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status, _ := strconv.Atoi(r.URL.Path[1:]); status > 0 {
				w.WriteHeader(status)
			} else if r.Method == http.MethodHead {
				_, _ = io.WriteString(w, "fine")
			}
		}))
		s.EnableHTTP2 = http2
		s.StartTLS()
		defer s.Close()
		l := places(1)
		client := transport(httplimit.TransportConfig{Places: l, Base: s.Client().Transport})
		for _, what := range []string{"GET /204", "GET /304", "GET /200", "HEAD /"} {
			method, path, _ := strings.Cut(what, " ")
			response, err := client.RoundTrip(request(t, method, s.URL+path, nil).WithContext(aMinute(t)))
			if err != nil {
				t.Fatal(what, err)
			}
			checkHeld(t, l, here, 0)
			_ = response.Body.Close()
		}
	}
}

// TestTransportBases checks that the place is released if Base misbehaves, and that a writable body
// does not count as a connection unless the status is 101.
func TestTransportBases(t *testing.T) {
	for want, base := range map[string]roundTripper{
		"a mistake":                       func(*http.Request) (*http.Response, error) { panic("a mistake") },
		"neither a response nor an error": func(*http.Request) (*http.Response, error) { return nil, nil },
		"":                                func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: http.StatusOK}, nil },
		"read": func(*http.Request) (*http.Response, error) {
			body := struct {
				io.ReadCloser
				io.Writer
			}{io.NopCloser(strings.NewReader("read")), io.Discard}
			return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
		},
	} {
		l := places(1)
		var got any
		func() {
			defer func() { got = cmp.Or(recover(), got) }()
			client := http.Client{Transport: transport(httplimit.TransportConfig{Places: l, Base: base})}
			response, err := client.Do(request(t, http.MethodGet, "http://x", nil)) //nolint:bodyclose // it is read to its end
			if got = err; err == nil {
				got = string(must(io.ReadAll(response.Body)))
			}
		}()
		if !strings.Contains(fmt.Sprint(got), want) {
			t.Errorf("%v, not %s", got, want)
		}
		checkHeld(t, l, here, 0)
	}
}

// TestTransportLostAtTheEnd checks that reading a body to its end succeeds even if the lease was
// lost before the end.
func TestTransportLostAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := transport(httplimit.TransportConfig{Places: brief(), Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("whole"))}, nil
		})})
		response := must(client.RoundTrip(request(t, http.MethodGet, "http://x", nil))) //nolint:bodyclose // it is read to its end
		<-time.After(time.Second)
		if text, err := io.ReadAll(response.Body); string(text) != "whole" || err != nil {
			t.Errorf("%s, %v", text, err)
		}
	})
}

// TestTransportLost checks that a request fails with ErrLost if its lease is lost: while it waits
// for its turn, while it waits for the response, while the body is read, and after 101 Switching
// Protocols.
func TestTransportLost(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/upgrade":
			takeOverAndEcho(w)
			return
		case "/body":
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	defer s.Close()
	busy := turns("1/30s")
	_ = busy.Wait(t.Context(), here)
	for path, turns := range map[string]*pace.Limiter{"/": nil, "/body": nil, "/turn": busy, "/upgrade": nil} {
		t.Run(path, func(t *testing.T) {
			response, err := transport(httplimit.TransportConfig{Turns: turns, Places: brief()}).RoundTrip(request(t, http.MethodGet, s.URL+path, nil).WithContext(aMinute(t)))
			if err == nil {
				defer response.Body.Close()
				_, err = io.ReadAll(response.Body)
			}
			if path == "/upgrade" {
				if err == nil {
					t.Error("the connection is open")
				}
			} else if !errors.Is(err, inflight.ErrLost) {
				t.Error(err)
			}
		})
	}
}

// takeOverAndEcho hijacks the connection, and echoes what it reads.
func takeOverAndEcho(w http.ResponseWriter) {
	conn, buffer, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(conn, buffer)
	_ = conn.(interface{ CloseWrite() error }).CloseWrite()
}

// TestTransportUpgrade checks that the body of a 101 Switching Protocols response remains a
// connection that can be written to and half-closed, even after the context is canceled, and that
// it holds its place until it is closed.
func TestTransportUpgrade(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { takeOverAndEcho(w) }))
	defer s.Close()
	l := placesInRedis(t, 1)
	ctx, leave := context.WithCancel(t.Context())
	r := request(t, http.MethodGet, s.URL, nil).WithContext(ctx)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	response, err := transport(httplimit.TransportConfig{Turns: turns("1/1ms"), Places: l}).RoundTrip(r) //nolint:bodyclose // as conn
	if err != nil {
		t.Fatal(err)
	}
	leave() // as a caller may after the handshake
	conn := response.Body.(io.ReadWriteCloser)
	defer conn.Close()
	_ = must(io.WriteString(conn, "hello"))
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	if text, err := io.ReadAll(conn); string(text) != "hello" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	checkHeld(t, l, here, 1)
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	checkHeld(t, l, here, 0)
}

// TestTransportClosesIdleConnections checks that http.Client can close the connections of Base.
func TestTransportClosesIdleConnections(t *testing.T) {
	closed := false
	client := http.Client{Transport: transport(httplimit.TransportConfig{Turns: turns("1/1ms"), Base: idle{closed: &closed}})}
	if client.CloseIdleConnections(); !closed {
		t.Error("they stay open")
	}
	client.Transport = transport(httplimit.TransportConfig{Turns: turns("1/1ms"), Base: roundTripper(nil)})
	client.CloseIdleConnections()
}

type idle struct {
	roundTripper
	closed *bool
}

func (i idle) CloseIdleConnections() { *i.closed = true }
