package servertest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/lua"
)

// Script is the script that tests use. The server does not parse it.
var Script = lua.New("return 'a script'")

// OnFakeTime runs test in a synctest bubble, with a new server. Time passes only while all
// goroutines wait.
func OnFakeTime(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, New()) })
}

// Pass lets the time d pass.
func Pass(d time.Duration) { <-time.After(d) }

// close removes all holds and actions, and closes all connections.
func (s *Server) close() {
	s.Choose(nil)
	s.Next()
	s.SlowDials(0)
	s.Release()
	s.Die()
}

// AlwaysPipelining sets whether a client sends even a single request through its background
// goroutines.
func AlwaysPipelining(always bool) func(*rueidis.ClientOption) {
	return func(o *rueidis.ClientOption) { o.AlwaysPipelining = always }
}

// Client returns a client of the server. Each function in change can change the client's options.
// The ring bounds the number of pipelines in flight on a connection. If there are more, the client's
// writer waits for a mutex until the replies to a pipeline arrive. synctest does not count that as
// waiting, so time would stand still.
func (s *Server) Client(t *testing.T, change ...func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	option := rueidis.ClientOption{
		InitAddress: []string{"node:0"}, DialCtxFn: s.dial, ForceSingleClient: true, DisableCache: true, AlwaysPipelining: true,
		PipelineMultiplex: -1, RingScaleEachConn: 9, ReadBufferEachConn: 1 << 12, WriteBufferEachConn: 1 << 12,
	}
	for _, c := range change {
		c(&option)
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.close()
		client.Close()
		Pass(time.Minute) // until the client's own retries have ended
	})
	return client
}

// ClusterClient returns a client of the cluster that consists of nodes.
func ClusterClient(t *testing.T, nodes []*Server) rueidis.Client {
	t.Helper()
	client := nodes[0].Client(t, func(o *rueidis.ClientOption) {
		o.ForceSingleClient, o.DialCtxFn = false, dialNodes(nodes)
	})
	t.Cleanup(func() {
		for _, s := range nodes {
			s.close()
		}
	})
	return client
}
