package window

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/dial"
	"github.com/slidegate/slidegate/internal/pipeline"
)

// Connection connects limiters and guards to Redis. Dial creates one from a URL, and On from a
// rueidis client. For a go-redis client, use package goredisgate. Any number of limiters and guards
// can share a Connection. Calls that they make at the same time travel together.
type Connection pipeline.Connection

// Dial returns a Connection at once, even while Redis is down. It connects in the background, and
// tries again every second until it succeeds. Calls of limiters wait for the first try, for at most
// their Timeout. After that, and until there is a connection, they are answered as in an outage: by
// the Fallback, or with ErrOutage at once. Observe receives KindOutageBegan at the first such call,
// and KindOutageEnded at the first call after the connection is up.
//
// rueidis.ParseURL reads the URL:
//
//	redis://127.0.0.1:6379                                          one server
//	rediss://user:password@redis.example.com:6379/1                 with TLS, a login and database 1
//	unix:///run/redis.sock                                          a socket
//	redis://10.0.0.1:6379?addr=10.0.0.2:6379&addr=10.0.0.3:6379     some nodes of a cluster
//	redis://10.0.0.1:26379?addr=10.0.0.2:26379&master_set=mymaster  Sentinels, and the name of the master
//
// One node of a cluster is enough, because the client asks it for the others. Percent-encode
// special characters in the password, such as / as %2F. The parameters dial_timeout, write_timeout
// and client_name set Dialer.Timeout, ConnWriteTimeout and ClientName in the options.
//
// Dial starts from options that keep an outage short: AlwaysPipelining, a Dialer.Timeout of 1 s and
// a ConnWriteTimeout of 2 s. The URL and then the functions in set can change them. A server that
// cannot track keys, which DenialCache needs, gets a client with DisableCache. To use your own
// certificate:
//
//	window.Dial(url, func(o *rueidis.ClientOption) { o.TLSConfig.RootCAs = pool })
//
// Sentinels are dialled with the TLS options of the URL, but without its user and password. Theirs
// are set in o.Sentinel.
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
	return (*Connection)(pipeline.Dial(func(context.Context) (rueidis.Client, error) { return dial.Client(o) }))
}

func refused(reason error) *Connection { return (*Connection)(pipeline.Refused(reason)) }

// On returns a Connection that sends through an existing client. It sends nothing yet. For the
// options to set in the client, see
// https://github.com/slidegate/slidegate/blob/main/docs/servers.md Close the client yourself, after
// its last use. If it is nil, New returns an error.
func On(client rueidis.Client) *Connection { return (*Connection)(pipeline.OnRueidis(client)) }

// Err returns nil once there is a client. Before that, it returns the error of the last failed try,
// if there is one. If New rejects the Connection, Err always returns the reason.
func (c *Connection) Err() error { return (*pipeline.Connection)(c).Err() }

// Wait waits until there is a client or ctx ends, so that a service can give Redis a moment when it
// starts. If there is a client, Wait returns nil, even if ctx has ended. Otherwise the error
// matches that of ctx, and quotes that of the last try. If New rejects the Connection, Wait returns
// the reason at once. Close ends the wait, too.
func (c *Connection) Wait(ctx context.Context) error { return (*pipeline.Connection)(c).Wait(ctx) }

// Close closes the client that Dial created, or ends its tries. It does not wait for a try in
// progress. A client that was passed to On stays open. Close the Connection after the last use of
// its limiters. If New rejects the Connection, Close does nothing.
func (c *Connection) Close() { (*pipeline.Connection)(c).Close() }
