package window

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/connection"
	"github.com/slidegate/slidegate/internal/dial"
)

// Connection connects limiters and guards to Redis. Dial creates one from a URL, and On from a
// rueidis client. For a go-redis client, use package goredisgate. Any number of limiters and guards
// can share a Connection. Calls that they make at the same time are sent in one pipeline.
type Connection connection.Connection

// Dial returns a Connection immediately, even while Redis is down. It connects in the background,
// and tries again every second until it succeeds. Limiter calls wait for the first try, but no
// longer than their Timeout. After that, and until there is a connection, calls behave as in an
// outage: the Fallback decides, or they return ErrOutage immediately. Observe receives
// KindOutageBegan at the first such call, and KindOutageEnded at the first call after the
// connection is up.
//
// rueidis.ParseURL reads the URL:
//
//	redis://127.0.0.1:6379                                          one server
//	rediss://user:password@redis.example.com:6379/1                 with TLS, a login and database 1
//	unix:///run/redis.sock                                          a socket
//	redis://10.0.0.1:6379?addr=10.0.0.2:6379&addr=10.0.0.3:6379     several nodes of a cluster
//	redis://10.0.0.1:26379?addr=10.0.0.2:26379&master_set=mymaster  Sentinels, and the master's name
//
// One node of a cluster is enough, because the client asks it for the others. Percent-encode
// special characters in the password: / becomes %2F, for example. The parameters dial_timeout,
// write_timeout and client_name set Dialer.Timeout, ConnWriteTimeout and ClientName in the options.
//
// Dial starts from options that keep an outage short: AlwaysPipelining, a Dialer.Timeout of 1 s and
// a ConnWriteTimeout of 2 s. It also sets DisableCache, which some servers need. The URL and then
// the functions in set can change them. To trust your own certificate authority:
//
//	window.Dial(url, func(o *rueidis.ClientOption) { o.TLSConfig.RootCAs = pool })
//
// Sentinels are dialled with the TLS options of the URL, but without its user and password. To give
// the Sentinels a user and password, set them in o.Sentinel.
//
// If the URL cannot be parsed, or has no address, New returns the error, and so do Err and Wait. No
// error contains the password.
func Dial(url string, set ...func(*rueidis.ClientOption)) *Connection {
	o, err := dial.URL(url)
	if err != nil {
		return refused(err)
	}
	dial.Safe(&o)
	for _, change := range set {
		change(&o)
	}
	if err := dial.Check(o); err != nil {
		return refused(err)
	}
	return (*Connection)(connection.Dial(func(context.Context) (rueidis.Client, error) { return dial.Client(o) }))
}

func refused(reason error) *Connection { return (*Connection)(connection.Refused(reason)) }

// On returns a Connection that sends through an existing client. On itself sends nothing. For the
// client options to set, see https://github.com/slidegate/slidegate/blob/main/docs/servers.md Close
// the client yourself, after its last use. If it is nil, New returns an error.
func On(client rueidis.Client) *Connection { return (*Connection)(connection.OnRueidis(client)) }

// Err returns nil once there is a client. Before that, it returns the error of the last failed try,
// or nil if no try has failed yet. If New rejects the Connection, Err always returns the reason.
func (c *Connection) Err() error { return (*connection.Connection)(c).Err() }

// Wait waits until there is a client or ctx is done, so that a starting service can give Redis a
// moment. If there is a client, Wait returns nil, even if ctx is done. Otherwise its error wraps
// that of ctx, and quotes the error of the last try. If New rejects the Connection, Wait returns
// the reason immediately. Close also ends the wait.
func (c *Connection) Wait(ctx context.Context) error { return (*connection.Connection)(c).Wait(ctx) }

// Close closes the client that Dial created, or stops trying to connect. It does not wait for a try
// in progress. A client that was passed to On stays open. Call Close after the last use of the
// limiters. If New rejects the Connection, Close does nothing.
func (c *Connection) Close() { (*connection.Connection)(c).Close() }
