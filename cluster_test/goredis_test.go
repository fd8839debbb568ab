package cluster_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/goredisgate"
	"github.com/slidegate/slidegate/internal/test/faulttest"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// TestReadsOnReplicas checks that a master that has become a replica redirects the calls of a
// client that reads from replicas. Such a client sends READONLY on each connection, and a replica
// would then execute the script.
func TestReadsOnReplicas(t *testing.T) {
	nodes, event := redistest.Replicated(t), shardEvents[failedShard][0]
	shortNodeTimeout.set(t, nodes)
	o := nodes.Options(nil)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: o.InitAddress, Dialer: faulttest.Dialer(o), RouteRandomly: true})
	defer client.Close()
	l := must(window.New(goredisgate.On(client), window.Config{Name: redistest.Key(t), Limits: []window.Limit{perMonth(1)}, Timeout: time.Minute}))
	mustAllow(t, l, event, 1)
	old := nodes.MasterOf(t, slotOf(event))
	nodes.Failover(t, old)
	must(old.Do(t.Context(), "CONFIG", "RESETSTAT").ToString())
	if n := freeUnits(t, l, event); n != 0 {
		t.Errorf("%d units are free", n)
	}
	info := must(old.Do(t.Context(), "INFO", "commandstats").ToString())
	if ran := regexp.MustCompile(`cmdstat_evalsha:calls=[1-9]`).FindString(info); ran != "" {
		t.Errorf("a replica has run the script: %s", ran)
	}
	if !regexp.MustCompile(`cmdstat_evalsha:.*rejected_calls=[1-9]`).MatchString(info) {
		t.Error("this test proves too little: nobody asked the old master")
	}
}
