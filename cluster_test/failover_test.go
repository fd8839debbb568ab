package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/health"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/window"
)

// incident takes a master out of service, so that its replica takes over.
type incident struct {
	name          string
	settings      settings
	begin         func(testing.TB, *redistest.Server)
	lasts         time.Duration // the minimum duration
	keepsDeciding bool          // whether the old master continues to decide
}

// incidents lists the incidents. The one with the longest node timeout comes first, because
// replicas can be elected again only after four node timeouts.
var incidents = []incident{
	{name: "isolated, node timeout 5 s, a replica required", settings: replicaRequired, begin: func(tb testing.TB, s *redistest.Server) { s.Isolate(tb) }},
	{name: "killed", settings: shortNodeTimeout, begin: func(tb testing.TB, s *redistest.Server) { s.Kill(tb) }},
	{name: "killed, coverage not required", settings: noCoverage, begin: func(tb testing.TB, s *redistest.Server) { s.Kill(tb) }},
	{name: "paused for 5 s", settings: noCoverage, begin: func(tb testing.TB, s *redistest.Server) { s.Pause(tb) }, lasts: 5 * time.Second},
	{name: "isolated", settings: noCoverage, keepsDeciding: true, begin: func(tb testing.TB, s *redistest.Server) { s.Isolate(tb) }},
}

// TestFailover loses a master under load in several ways. Only units that the master had
// acknowledged but its replica had not received may be allowed again. Calls must end in time, and
// every call must be accounted for. With -v, the test prints the table in docs/failover.md.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for failovers")
	}
	t.Log("| master | replica took over after | no decision for | other shards: none for | their latency before, during | acknowledged after the start | lost | allowed beyond Max | uncertain | refused |")
	for _, in := range incidents {
		t.Run(in.name, in.test)
	}
}

// incidentRun is an incident as one kind of limiter experiences it.
type incidentRun struct {
	*loadedLimiter
	name     string            // the limiter's Name
	received map[string]string // the records of the shard that the replica had received
	before   time.Time         // a time before the incident
	began    time.Time         // a time after the incident had begun
	over     time.Time         // when the replica had become the master, or the pause had ended
	stopped  time.Time         // when the old master had certainly stopped deciding; an isolated master can continue for a while
	attempts []attempt
	lost     map[string]int64 // units that the old master acknowledged but its replica had not received
	limit    time.Duration    // how long a call may take on this machine
}

// maxUnits is the limit of each limiter in an incident. It is large enough that no shard is used up
// before its replica takes over.
const maxUnits = 120

func (in incident) test(t *testing.T) {
	nodes := redistest.Replicated(t)
	in.settings.set(t, nodes)
	nodes.AwaitVotes(t)
	runs, timers := startRuns(t, nodes), startTimers()
	for _, s := range runs {
		s.await(t, 500)
	}
	in.run(t, nodes, runs)
	nodes.Heal(t)
	client := nodes.NewClient(t, nil)
	endRuns(t, runs, timers)
	for _, s := range runs {
		t.Run(s.kind.name, func(t *testing.T) { s.verify(t, in, client) })
	}
}

// leaveSilentConnections sets the timeout for silent connections that docs/servers.md recommends.
// With a longer timeout, a master that was paused could answer requests before it learns that a
// replica has taken over.
func leaveSilentConnections(o *rueidis.ClientOption) { o.ConnWriteTimeout = 2 * time.Second }

// startRuns starts a run under load for each kind of limiter.
func startRuns(t *testing.T, nodes *redistest.Nodes) (runs []*incidentRun) {
	t.Helper()
	names := map[string]string{}
	for _, c := range loadEveryKind(t, func(k kind) limiter {
		names[k.name] = redistest.Key(t)
		return k.newWithConfig(t, nodes.Options(leaveSilentConnections), window.Config{Name: names[k.name], Limits: []window.Limit{perMonth(maxUnits)}, Timeout: timeout})
	}, roundRobin(slices.Concat(shardEvents[:]...))) {
		runs = append(runs, &incidentRun{loadedLimiter: c, name: names[c.name]})
	}
	return runs
}

// run takes the master out of service. It waits until the replica has taken over and the incident
// is over.
func (in incident) run(t *testing.T, nodes *redistest.Nodes, runs []*incidentRun) {
	t.Helper()
	old := nodes.MasterOf(t, slotOf(shardEvents[failedShard][0]))
	replica := nodes.ReplicaOf(t, old)
	before := time.Now()
	in.begin(t, old)
	began := time.Now()
	awaitSilence(t, replica)
	for _, s := range runs {
		s.received = s.records(t, replica, s.name, shardEvents[failedShard])
	}
	checkIsReplica(t, replica)
	nodes.AwaitFailover(t, old, replica)
	over := time.Now()
	for _, s := range runs {
		s.before, s.began, s.over, s.stopped = before, began, over, in.stopped(began, over)
	}
	redistest.Eventually(t, "the incident has lasted long enough", func() bool { return time.Since(began) > in.lasts })
}

// stopped returns when the old master had certainly stopped deciding. Unless it is isolated, it
// stops immediately. An isolated master stops when it notices that the other masters are missing.
// If it needs a replica, it stops when it notices that the replica is missing, which is before the
// replica takes over.
func (in incident) stopped(began, over time.Time) time.Time {
	end := began.Add(in.settings.nodeTimeout * 3 / 2)
	switch {
	case in.keepsDeciding && end.After(over):
		return end
	case in.keepsDeciding || in.settings.replicas != "0":
		return over
	}
	return began
}

// endRuns ends all runs, and the timers that have run beside them.
func endRuns(t *testing.T, runs []*incidentRun, timers *redistest.Control) {
	t.Helper()
	for _, s := range runs {
		s.end(t)
	}
	limit := timers.Limit()
	for _, s := range runs {
		s.limit = limit
	}
}

// verify compares all attempts with the counts.
func (s *incidentRun) verify(t *testing.T, in incident, client rueidis.Client) {
	s.lost = s.missing(t, client)
	sum := checkCounts(t, s.limiter, maxUnits, s.attempts, s.lost)
	s.check(t, in)
	s.checkLoss(t, in, sum)
	s.logRow(t, sum)
}

// end stops the callers and uses up all events.
func (s *incidentRun) end(t *testing.T) {
	t.Helper()
	s.awaitDecision(t)
	s.attempts = slices.Concat(s.attempts, s.callerGroup.end(), exhaust(t, s.limiter, slices.Concat(shardEvents[:]...)))
}

// awaitDecision sends attempts on an event of the shard until one gets a decision.
func (s *incidentRun) awaitDecision(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, "the shard is served again", func() bool {
		a := allowFunc(s.limiter.Allow).attempt(t.Context(), shardEvents[failedShard][0])
		s.attempts = append(s.attempts, a)
		return a.err == nil
	})
}

// awaitSilence waits until the replica receives no more data from its master.
func awaitSilence(t *testing.T, replica *redistest.Server) {
	t.Helper()
	offset, since := "", time.Now()
	redistest.Eventually(t, "the replica gets no more data", func() bool {
		info := must(replica.Do(t.Context(), "INFO", "replication").ToString())
		_, at, _ := strings.Cut(info, "slave_repl_offset:")
		if at, _, _ = strings.Cut(at, "\r"); at != offset {
			offset, since = at, time.Now()
		}
		return strings.Contains(info, "master_link_status:down") || time.Since(since) > 200*time.Millisecond
	})
}

// records returns the records of the given events on a replica.
func (k kind) records(t *testing.T, replica *redistest.Server, name string, events []string) map[string]string {
	t.Helper()
	records := map[string]string{}
	must(replica.Do(t.Context(), "READONLY").ToString())
	readWhenDown := func(yes string) {
		must(replica.Do(t.Context(), "CONFIG", "SET", "cluster-allow-reads-when-down", yes).ToString())
	}
	readWhenDown("yes") // the replica may already know that its master is down
	defer readWhenDown("no")
	for _, event := range events {
		record, err := replica.Do(t.Context(), "GET", k.key(name, event)).ToString()
		if err != nil {
			t.Fatalf("the replica's record of %s: %v", event, err)
		}
		records[event] = record
	}
	return records
}

// checkIsReplica fails the test if the replica has already taken over.
func checkIsReplica(t *testing.T, replica *redistest.Server) {
	t.Helper()
	if info := must(replica.Do(t.Context(), "INFO", "replication").ToString()); !strings.Contains(info, "role:slave") {
		t.Fatal("the replica was promoted before the test had read what it received")
	}
}

// missing compares the units that the old master acknowledged with the records that its replica had
// received. Until the old master has stopped, units that the new master allows count as
// acknowledged too, because nothing shows which of the two decided.
func (s *incidentRun) missing(t *testing.T, client rueidis.Client) map[string]int64 {
	t.Helper()
	name, acknowledged, lost := redistest.Key(t), map[string]int64{}, map[string]int64{}
	copies := must(s.newOnClient(client, window.Config{Name: name, Limits: []window.Limit{perMonth(maxUnits)}}))
	for _, a := range s.attempts {
		if a.allowed() && a.decision.At.Before(s.stopped) {
			acknowledged[a.event]++
		}
	}
	for event, record := range s.received {
		key := s.key(name, event)
		if err := client.Do(t.Context(), client.B().Set().Key(key).Value(record).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		lost[event] = max(0, acknowledged[event]-(maxUnits-freeUnits(t, copies, event)))
	}
	return lost
}

// inFailedShard reports whether the event is in the shard that lost its master.
func inFailedShard(event string) bool { return slices.Contains(shardEvents[failedShard], event) }

// check checks that calls ended in time, and that the other shards continued to decide, unless
// their masters refused.
func (s *incidentRun) check(t *testing.T, in incident) {
	t.Helper()
	var others, down, late int
	for _, a := range s.attempts {
		if a.took > s.limit {
			t.Errorf("%s: a call took %v, longer than %v: %v", a.event, a.took, s.limit, a.err)
		}
		switch {
		case a.err == nil || inFailedShard(a.event):
			continue
		case strings.Contains(a.err.Error(), "no reply within"): // the machine was busy
			late++
		case in.settings.coverage == "no" || !errors.Is(a.err, window.ErrOutage):
			t.Fatalf("%s belongs to another shard: %v", a.event, a.err)
		case strings.Contains(a.err.Error(), "CLUSTERDOWN"):
			down++
		}
		others++
	}
	if late > callers || others > late && down == 0 {
		t.Errorf("%d decisions of the other shards failed: %d too late, %d because masters refused", others, late, down)
	}
	before, during := s.median(false), s.median(true)
	if in.settings.coverage == "no" && (during == 0 || during > 2*before+timeout/4) { // otherwise the other shards refuse for a while
		t.Errorf("a decision of the other shards took %v before and %v during the incident", before, during)
	}
}

// checkLoss checks that no more units were lost than had been acknowledged after the start of the
// incident, and that the shard decided again in time.
func (s *incidentRun) checkLoss(t *testing.T, in incident, sum outcomes) {
	t.Helper()
	after, last, lost := s.acknowledgedAfter(s.before)
	gap, takeover := s.longestGap(true), s.over.Sub(s.before)
	decidesFor := in.settings.nodeTimeout * 3 / 2
	if in.settings.replicas != "0" {
		decidesFor = 3 * time.Second // min-replicas-max-lag, in whole seconds
	}
	switch {
	case in.keepsDeciding && lost == 0, !in.keepsDeciding && sum.refused == 0:
		t.Error("this test proves too little: nothing was lost, or no call was refused")
	case lost > after+callers, !in.keepsDeciding && in.settings.replicas == "0" && lost > callers:
		t.Errorf("%d units were lost of the %d acknowledged after the start", lost, after)
	case last > decidesFor+s.limit:
		t.Errorf("the old master acknowledged for %v", last)
	case in.settings.replicas == "0" && gap > takeover+health.RecoveryDelay+s.limit:
		t.Errorf("no decision for %v, though the replica took over after %v", gap, takeover)
	case sum.uncertain > 10*callers:
		t.Errorf("%d calls were uncertain", sum.uncertain)
	}
}

// acknowledgedAfter returns how many units of the shard the old master acknowledged after begin,
// for how long it did so, and how many of them were lost.
func (s *incidentRun) acknowledgedAfter(begin time.Time) (units int64, last time.Duration, lost int64) {
	for _, a := range s.attempts {
		if inFailedShard(a.event) && a.allowed() && a.ended().After(begin) && a.decision.At.Before(s.stopped) {
			units++
			last = max(last, a.ended().Sub(begin))
		}
	}
	for _, n := range s.lost {
		lost += n
	}
	return units, last.Round(10 * time.Millisecond), lost
}

// median returns the median duration of decisions by the other shards: before the incident or, if
// during is set, from its start until the replica took over. It returns 0 if there were none.
func (s *incidentRun) median(during bool) time.Duration {
	var took []time.Duration
	for _, a := range s.attempts {
		if a.err == nil && !inFailedShard(a.event) && a.began.Before(s.over) && a.began.After(s.began) == during {
			took = append(took, a.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2].Round(10 * time.Microsecond)
}

// longestGap returns the longest time between two decisions of the failed shard, or of the other
// shards.
func (s *incidentRun) longestGap(failed bool) (longest time.Duration) {
	attempts := slices.DeleteFunc(slices.Clone(s.attempts), func(a attempt) bool { return a.err != nil || inFailedShard(a.event) != failed })
	slices.SortFunc(attempts, func(a, b attempt) int { return a.ended().Compare(b.ended()) })
	for i := range max(0, len(attempts)-1) {
		longest = max(longest, attempts[i+1].ended().Sub(attempts[i].ended()))
	}
	return longest.Round(10 * time.Millisecond)
}

// logRow logs a row of the table in docs/failover.md.
func (s *incidentRun) logRow(t *testing.T, sum outcomes) {
	t.Helper()
	after, last, lost := s.acknowledgedAfter(s.began)
	t.Logf("| %s | %v | %v | %v | %v, %v | %d in %v | %d | %d | %d | %d |", strings.NewReplacer("TestFailover/", "", "_", " ", "/", ", ").Replace(t.Name()), s.over.Sub(s.began).Round(10*time.Millisecond),
		s.longestGap(true), s.longestGap(false), s.median(false), s.median(true), after, last, lost, sum.overLimit, sum.uncertain, sum.refused)
}

// TestClockStepsBack moves a shard from a master whose clock is ahead to one whose clock is right.
// This must not free any units, or lock a client out for longer than promised. The tests cannot set
// the clock of a server, so Config.Now provides the first master's time.
func TestClockStepsBack(t *testing.T) {
	nodes := redistest.Replicated(t)
	shortNodeTimeout.set(t, nodes)
	var all []stepBack
	for _, ahead := range []time.Duration{40 * time.Second, time.Hour} { // less than Per, and much more
		for _, k := range kinds {
			s := stepBack{k, nodes.NewClient(t, nil), window.Config{Name: redistest.Key(t), Limits: []window.Limit{window.PerMinute(4)}}, ahead}
			mustAllow(t, s.clock(ahead), full, 4)
			mustAllow(t, s.clock(ahead), half, 2)
			all = append(all, s)
		}
	}
	old := nodes.MasterOf(t, slotOf(full))
	if nodes.Failover(t, old); nodes.MasterOf(t, slotOf(full)) == old {
		t.Fatal("no failover")
	}
	for _, s := range all {
		t.Run(fmt.Sprint(s.ahead, " ", s.name), s.locksNobodyOut)
	}
}

// full and half are events on the master whose clock is ahead. All units of full have been counted
// there, and half of the units of half.
var full, half = shardEvents[failedShard][0], shardEvents[failedShard][1]

// stepBack is a case in which a master's clock steps back.
type stepBack struct {
	kind
	client rueidis.Client
	cfg    window.Config
	ahead  time.Duration
}

// clock returns the limiter whose clock is ahead.
func (s stepBack) clock(ahead time.Duration) limiter {
	s.cfg.Now = func() time.Time { return time.Now().Add(ahead) }
	return must(s.newOnClient(s.client, s.cfg))
}

// locksNobodyOut checks that the limiter whose clock is right allows no more than the limit, and
// that the waits it returns are correct.
func (s stepBack) locksNobodyOut(t *testing.T) {
	right := must(s.newOnClient(s.client, s.cfg))
	mustAllow(t, right, half, 2)
	for _, event := range []string{full, half} {
		d, err := right.Allow(t.Context(), event)
		if err != nil || d.Allowed || d.RetryAfter > 2*time.Minute {
			t.Errorf("%s: %+v %v", event, d, err)
		}
		if wait := s.ahead + time.Minute; s.name == "window" && s.ahead < time.Minute && (d.RetryAfter > wait || d.RetryAfter < wait-30*time.Second) {
			t.Errorf("%s: denied for %v, though its units were dated %v ahead", event, d.RetryAfter, s.ahead)
		}
		mustAllow(t, s.clock(d.RetryAfter), event, 1)
	}
}

// TestPausedMaster pauses a master for 3 s, which is too short for its replica to take over. After
// the pause, the master executes the requests sent to it in the meantime. Their callers must have
// got ErrUncertain in time.
func TestPausedMaster(t *testing.T) {
	if testing.Short() {
		t.Skip("it pauses for 3 s")
	}
	nodes := redistest.Replicated(t)
	noCoverage.set(t, nodes)
	master := nodes.MasterOf(t, slotOf(shardEvents[failedShard][0]))
	replica := nodes.ReplicaOf(t, master)
	must(replica.Do(t.Context(), "CONFIG", "SET", "cluster-replica-no-failover", "yes").ToString())
	t.Cleanup(func() {
		must(replica.Do(context.Background(), "CONFIG", "SET", "cluster-replica-no-failover", "no").ToString())
	})
	runs, timers := startRuns(t, nodes), startTimers()
	for _, s := range runs {
		s.await(t, 500)
	}
	master.Pause(t)
	began := time.Now()
	redistest.Eventually(t, "the pause lasts 3 s", func() bool { return time.Since(began) > 3*time.Second })
	over := time.Now()
	nodes.Heal(t)
	endRuns(t, runs, timers)
	for _, s := range runs {
		s.began, s.over = began, over
		t.Run(s.kind.name, s.outlastsAPause)
	}
	if nodes.MasterOf(t, slotOf(shardEvents[failedShard][0])) != master {
		t.Error("this test proves too little: the replica took over")
	}
}

func (s *incidentRun) outlastsAPause(t *testing.T) {
	s.check(t, incident{settings: noCoverage})
	sum := checkCounts(t, s.limiter, maxUnits, s.attempts, nil)
	t.Logf("%+v, %v without a decision", sum, s.longestGap(true))
	if sum.uncertain == 0 || sum.counted == sum.allowed {
		t.Error("this test proves too little: the master executed nothing after the pause")
	}
}

// TestGracefulFailover makes every replica take over under load, as in a rolling restart. The old
// masters then restart as empty nodes, so each shard gets a master that has never seen the scripts.
// No caller may notice, and nothing may be lost.
func TestGracefulFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("it restarts every master")
	}
	nodes := redistest.Replicated(t)
	var all []*loadedLimiter
	for hung := -1; nodes.Hung > hung; { // repeat if a node hung, because calls to it fail
		for _, c := range all {
			c.end()
		}
		hung = nodes.Hung
		all = restartAll(t, nodes)
	}
	eachLoaded(t, all, func(t *testing.T, c *loadedLimiter) {
		attempts := c.end()
		checkNoErrors(t, attempts)
		t.Logf("%+v", checkCounts(t, c.limiter, neverReached, attempts, nil))
	})
}

// restartAll restarts every master after its replica has taken over. It returns limiters whose load
// began before that.
func restartAll(t *testing.T, nodes *redistest.Nodes) []*loadedLimiter {
	t.Helper()
	all := loadEach(t, mixedKinds, func(k kind) limiter { return k.newLimiter(t, nodes.Options(nil), perMonth(neverReached)) }, roundRobin(slices.Concat(shardEvents[:]...)))
	await := func(more int64) {
		for _, c := range all {
			c.await(t, more)
		}
	}
	for _, events := range shardEvents {
		await(100)
		old := nodes.MasterOf(t, slotOf(events[0]))
		promoted := nodes.Failover(t, old)
		redistest.Eventually(t, "no caller uses the old master any more", func() bool {
			before := redirected(t, old)
			await(100)
			return redirected(t, old) == before
		})
		old.Kill(t)
		nodes.Heal(t)
		nodes.Failover(t, promoted)
	}
	return all
}

// redirected returns how many script calls the server rejected, including those that belong to
// another node.
func redirected(t *testing.T, s *redistest.Server) string {
	t.Helper()
	info := must(s.Do(t.Context(), "INFO", "commandstats").ToString())
	rejected := regexp.MustCompile(`cmdstat_evalsha:.*rejected_calls=\d+`).FindString(info)
	if rejected == "" {
		t.Fatalf("no rejected calls of EVALSHA in %s", info)
	}
	return rejected
}
