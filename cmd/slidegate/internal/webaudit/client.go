package webaudit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	answerTimeout = 10 * time.Second // how long to wait for a response
	idleTimeout   = time.Second      // the server may close connections that have been idle for longer
	maxBody       = 1 << 20          // the maximum number of bytes read from a body
	maxAnswer     = 2 << 20          // the maximum number of bytes read from a response, including its header
)

// request is an HTTP request. Its target is written verbatim on the request line, so that a path
// can be spelled in any way.
type request struct {
	method, target, host string
	header               http.Header
	body                 []byte
}

// write writes the request as HTTP/1.1.
func (r request) write(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.method, r.target, r.host)
	_ = r.header.Write(&b)
	if len(r.body) > 0 || r.method == http.MethodPost {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	b.WriteString("\r\n")
	b.Write(r.body)
	_, err := w.Write(b.Bytes())
	return err
}

// answer represents the response to a request.
type answer struct {
	status int
	header http.Header
	media  string
	body   string
}

// connection is a connection that is kept open for further requests.
type connection struct {
	net.Conn
	read  *bufio.Reader
	limit *io.LimitedReader // the underlying reader of read
	idle  time.Time         // when it became idle
}

var errBudget = errors.New("all announced requests have been sent")

// client sends requests to a target, up to a total number. It never repeats a request, and does not
// follow redirects.
type client struct {
	target
	left  atomic.Int64
	sent  atomic.Int64
	trust *tls.Config // for tests; nil means the system's certificates

	mu   sync.Mutex
	open []*connection
}

// count counts a request that is about to be sent. It returns errBudget if none is left.
func (c *client) count() error {
	if c.left.Add(-1) < 0 {
		return errBudget
	}
	c.sent.Add(1)
	return nil
}

// send sends a request. It uses the most recently used connection if one is open, or else a new
// one.
func (c *client) send(ctx context.Context, r request) (answer, error) {
	conn := c.takeIdle()
	if conn == nil {
		var err error
		if conn, err = c.connect(ctx, netip.Addr{}); err != nil {
			return answer{}, err
		}
	}
	a, keep, err := c.exchange(ctx, conn, r)
	if !keep {
		_ = conn.Close()
		return a, err
	}
	conn.idle = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, conn)
	return a, err
}

// sendAlone sends a request on a new connection, from the given local address.
func (c *client) sendAlone(ctx context.Context, r request, from netip.Addr) (answer, error) {
	conn, err := c.connect(ctx, from)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = conn.Close() }()
	a, _, err := c.exchange(ctx, conn, r)
	return a, err
}

// takeIdle returns an open connection that has been idle for less than idleTimeout, or nil if there
// is none.
func (c *client) takeIdle() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.open) > 0 {
		last := c.open[len(c.open)-1]
		c.open = c.open[:len(c.open)-1]
		if time.Since(last.idle) < idleTimeout {
			return last
		}
		_ = last.Close()
	}
	return nil
}

// close closes all connections.
func (c *client) close() {
	for conn := c.takeIdle(); conn != nil; conn = c.takeIdle() {
		_ = conn.Close()
	}
}

func (c *client) connect(ctx context.Context, from netip.Addr) (*connection, error) {
	conn, err := c.dial(ctx, from)
	if err != nil {
		return nil, err
	}
	if c.url.Scheme == "https" {
		secure := tls.Client(conn, c.tls("http/1.1"))
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		conn = secure
	}
	limit := &io.LimitedReader{R: conn}
	return &connection{Conn: conn, read: bufio.NewReader(limit), limit: limit}, nil
}

// tls returns the TLS configuration for the given protocol.
func (c *client) tls(protocol string) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.trust != nil {
		cfg = c.trust.Clone()
	}
	cfg.ServerName, cfg.NextProtos = c.serverName(), []string{protocol}
	return cfg
}

// exchange sends a request and reads the response. It reports whether the connection can be reused.
func (c *client) exchange(ctx context.Context, conn *connection, r request) (a answer, keep bool, err error) {
	if err := c.count(); err != nil {
		return a, true, err
	}
	conn.limit.N = maxAnswer
	_ = conn.SetDeadline(time.Now().Add(answerTimeout))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() { keep = stop() && keep }()
	if err := r.write(conn); err != nil {
		return a, false, err
	}
	for err == nil && a.status < http.StatusOK { // 100 and 103 precede the response
		a, keep, err = conn.receive(r.method)
	}
	return a, keep, err
}

// receive reads a response. It reports whether the connection can be reused.
func (c *connection) receive(method string) (a answer, keep bool, err error) {
	resp, err := http.ReadResponse(c.read, &http.Request{Method: method})
	if err != nil {
		return a, false, err
	}
	defer func() { _ = resp.Body.Close() }()
	a, whole := readAnswer(resp)
	return a, whole && !resp.Close, nil
}

// readAnswer reads a response. It reports whether it read all of it.
func readAnswer(resp *http.Response) (answer, bool) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return answer{resp.StatusCode, resp.Header, media, string(body)}, err == nil && len(body) < maxBody
}

// sendHTTP2 sends a request over HTTP/2 on a new connection. spoken is false if the server does not
// support HTTP/2.
func (c *client) sendHTTP2(ctx context.Context, r request) (a answer, spoken bool, err error) {
	t := &http.Transport{TLSClientConfig: c.tls("h2"), ForceAttemptHTTP2: true, DisableCompression: true}
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx, netip.Addr{}) }
	defer t.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	u := *c.url
	q, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return a, false, err
	}
	q.Header, q.Host, q.GetBody = r.header.Clone(), r.host, nil
	if err := c.count(); err != nil {
		return a, false, err
	}
	resp, err := t.RoundTrip(q) // does not follow redirects
	if err != nil {
		return a, false, err
	}
	defer func() { _ = resp.Body.Close() }()
	a, _ = readAnswer(resp)
	return a, resp.ProtoMajor == 2, nil
}

// retryAfter returns the Retry-After of a response, or 0 if it is missing or not in seconds. A date
// proves nothing, because the service's clock is unknown.
func (a answer) retryAfter() time.Duration {
	seconds, _ := strconv.ParseInt(strings.TrimSpace(a.header.Get("Retry-After")), 10, 32)
	return time.Duration(max(seconds, 0)) * time.Second
}

// like reports whether two responses appear to come from the same resource. varies means that the
// bodies of its responses differ.
func (a answer) like(b answer, varies bool) bool {
	return a.status == b.status && a.media == b.media && (varies || a.body == b.body || a.body == "" || b.body == "")
}
