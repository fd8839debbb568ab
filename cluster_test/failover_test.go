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

	"github.com/slidegate/slidegate/internal/engine"
	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/window"
)

// An incident takes a master out of service, so that its replica takes over.
type incident struct {
	name     string
	settings settings
	begin    func(testing.TB, *redistest.Server)
	lasts    time.Duration // at least
	goesOn   bool          // the master decides on
}

// settings are those of the servers that matter in an incident.
type settings struct {
	nodeTimeout time.Duration // cluster-node-timeout
	coverage    string        // cluster-require-full-coverage: whether the other masters then refuse, too
	replicas    string        // min-replicas-to-write: how many a master needs so as not to refuse
}

var (
	byDefault  = settings{5 * time.Second, "yes", "0"}
	quick      = settings{1500 * time.Millisecond, "yes", "0"}
	noCoverage = settings{1500 * time.Millisecond, "no", "0"}
	needy      = settings{5 * time.Second, "no", "1"}
)

var incidents = []incident{
	{name: "killed", settings: quick, begin: func(tb testing.TB, s *redistest.Server) { s.Kill(tb) }},
	{name: "killed, coverage not required", settings: noCoverage, begin: func(tb testing.TB, s *redistest.Server) { s.Kill(tb) }},
	{name: "paused for 5 s", settings: noCoverage, begin: func(tb testing.TB, s *redistest.Server) { s.Pause(tb) }, lasts: 5 * time.Second},
	{name: "isolated", settings: noCoverage, goesOn: true, begin: func(tb testing.TB, s *redistest.Server) { s.Isolate(tb) }},
	{name: "isolated, node timeout 5 s, a replica required", settings: needy, begin: func(tb testing.TB, s *redistest.Server) { s.Isolate(tb) }},
}

// set gives all nodes these settings, until the test ends.
func (s settings) set(t *testing.T, nodes *redistest.Nodes) {
	t.Helper()
	configure := func(s settings) {
		onAll(t, nodes, "CONFIG", "SET", "cluster-node-timeout", fmt.Sprint(s.nodeTimeout.Milliseconds()), "cluster-require-full-coverage", s.coverage,
			"min-replicas-to-write", s.replicas, "min-replicas-max-lag", "2")
	}
	configure(s)
	t.Cleanup(func() { configure(byDefault) })
	t.Cleanup(func() { nodes.Heal(t) })
}

// TestFailover loses a master under load in each way. What it had acknowledged and its replica not yet received may be admitted again,
// and nothing else. Calls end in time, and every one is accounted for. With -v it prints the table of docs/failover.md.
func TestFailover(t *testing.T) {
	t.Log("| master | replica took over after | no decision for | other shards: none for | their latency before, during | acknowledged after the begin | lost | admitted beyond Max | uncertain | refused |")
	for _, in := range redistest.UnlessShort(incidents, incidents[:1]) {
		t.Run(in.name, in.test)
	}
}

const (
	callers = 16              // of each kind of limiter
	timeout = time.Second     // of a call, the default
	slack   = 2 * time.Second // what a busy machine may take beyond that
	victim  = 0               // the shard that loses its master
)

// shardEvents are some events of each shard. None is in a part of the slots that two masters share, which limiters leave alone with either.
var shardEvents = someEvents(20)

func someEvents(each int) (of [3][]string) {
	for n := 0; len(of[0]) < each || len(of[1]) < each || len(of[2]) < each; n++ {
		event := fmt.Sprint("198.51.100.", n)
		if shard := slotOf(event) * 3 / 16384; !shared(event) && len(of[shard]) < each {
			of[shard] = append(of[shard], event)
		}
	}
	return of
}

// shared reports whether the event is in a part of the slots that two masters share.
func shared(event string) bool {
	part := slotOf(event) / 256
	return part == 21 || part == 42
}

// A story is what is known of an incident, by one kind of limiter.
type story struct {
	*contestant
	name     string            // of the limiter
	received map[string]string // records that the replica had of the shard
	begins   time.Time         // before the incident
	began    time.Time         // after it had begun
	over     time.Time         // when the replica was seen to be the master, or the pause had ended
	stopped  time.Time         // when the old master certainly decided no more: an isolated one can go on for a while beside its heir
	attempts []attempt
	lost     map[string]int64 // units that the old master acknowledged and its replica had not received
}

// most is how many units each limiter of an incident admits. A shard is not used up before its replica takes over.
const most = 300

func (in incident) test(t *testing.T) {
	nodes := redistest.Replicated(t)
	in.settings.set(t, nodes)
	stories := newStories(t, nodes)
	for _, s := range stories {
		s.await(t, 1500)
	}
	in.happen(t, nodes, stories)
	nodes.Heal(t)
	client := nodes.NewClient(t, nil)
	for _, s := range stories {
		t.Run(s.kind.name, func(t *testing.T) { s.judge(t, in, client) })
	}
}

// prompt has a client leave a connection that falls silent as early as docs/servers.md advises. One that waits for longer can have its
// requests answered by a master that was paused and does not know its heir yet.
func prompt(o *rueidis.ClientOption) { o.ConnWriteTimeout = 2 * time.Second }

// newStories begins one for each kind of limiter.
func newStories(t *testing.T, nodes *redistest.Nodes) (stories []*story) {
	t.Helper()
	names := map[string]string{}
	for _, c := range contest(t, func(k kind) limiter {
		names[k.name] = redistest.Key(t)
		return k.on(t, nodes.Options(prompt), window.Config{Name: names[k.name], Limits: []window.Limit{months(most)}})
	}, inTurn(slices.Concat(shardEvents[:]...))) {
		stories = append(stories, &story{contestant: c, name: names[c.name]})
	}
	return stories
}

// happen takes the master out of service, until its replica has taken over and the incident is over.
func (in incident) happen(t *testing.T, nodes *redistest.Nodes, stories []*story) {
	t.Helper()
	old := nodes.MasterOf(t, slotOf(shardEvents[victim][0]))
	heir := nodes.ReplicaOf(t, old)
	begins := time.Now()
	in.begin(t, old)
	began := time.Now()
	awaitSilence(t, heir)
	for _, s := range stories {
		s.received = s.records(t, heir, s.name, shardEvents[victim])
	}
	isReplica(t, heir)
	nodes.AwaitFailover(t, old, heir)
	over := time.Now()
	for _, s := range stories {
		s.begins, s.began, s.over, s.stopped = begins, began, over, in.stopped(began, over)
	}
	eventually(t, "the incident lasts so long", func() bool { return time.Since(began) > in.lasts })
}

// stopped is when the old master certainly decided no more: at once, unless it is isolated. Then it stops when it misses the others or its
// replica, which is before the replica has taken over where it needs one.
func (in incident) stopped(began, over time.Time) time.Time {
	end := began.Add(in.settings.nodeTimeout * 3 / 2)
	switch {
	case in.goesOn && end.After(over):
		return end
	case in.goesOn || in.settings.replicas != "0":
		return over
	}
	return began
}

// judge ends a story, and holds all its attempts against what is counted.
func (s *story) judge(t *testing.T, in incident, client rueidis.Client) {
	s.end(t)
	s.lost = s.missing(t, client)
	sum := settle(t, s.limiter, most, s.attempts, s.lost)
	s.check(t, in)
	s.checkLoss(t, in, sum)
	s.tell(t, sum)
}

// end has the crowd stop, and uses up all events.
func (s *story) end(t *testing.T) {
	t.Helper()
	s.awaitDecision(t)
	s.attempts = slices.Concat(s.attempts, s.crowd.end(), drain(t, s.limiter, slices.Concat(shardEvents[:]...)))
}

// awaitDecision asks about an event of the shard until there is a decision.
func (s *story) awaitDecision(t *testing.T) {
	t.Helper()
	eventually(t, "the shard is served again", func() bool {
		a := asker(s.limiter.Allow).attempt(t.Context(), shardEvents[victim][0])
		s.attempts = append(s.attempts, a)
		return a.err == nil
	})
}

// awaitSilence returns when a replica gets no more from its master.
func awaitSilence(t *testing.T, replica *redistest.Server) {
	t.Helper()
	offset, since := "", time.Now()
	eventually(t, "the replica gets no more", func() bool {
		info := must(replica.Do(t.Context(), "INFO", "replication").ToString())
		_, at, _ := strings.Cut(info, "slave_repl_offset:")
		if at, _, _ = strings.Cut(at, "\r"); at != offset {
			offset, since = at, time.Now()
		}
		return strings.Contains(info, "master_link_status:down") || time.Since(since) > 200*time.Millisecond
	})
}

// records reads those of events from a replica.
func (k kind) records(t *testing.T, replica *redistest.Server, name string, events []string) map[string]string {
	t.Helper()
	records := map[string]string{}
	must(replica.Do(t.Context(), "READONLY").ToString())
	readWhenDown := func(yes string) {
		must(replica.Do(t.Context(), "CONFIG", "SET", "cluster-allow-reads-when-down", yes).ToString())
	}
	readWhenDown("yes") // it may already know that its master is gone
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

// isReplica fails the test if the replica has taken over.
func isReplica(t *testing.T, replica *redistest.Server) {
	t.Helper()
	if info := must(replica.Do(t.Context(), "INFO", "replication").ToString()); !strings.Contains(info, "role:slave") {
		t.Fatal("the replica was promoted before the test had read what it received")
	}
}

// missing compares what the old master acknowledged with the records that its replica had received. Until the old one has stopped,
// what the new one admits counts as acknowledged, too: nothing shows which of them decided.
func (s *story) missing(t *testing.T, client rueidis.Client) map[string]int64 {
	t.Helper()
	name, acknowledged, lost := redistest.Key(t), map[string]int64{}, map[string]int64{}
	copies := must(s.make(client, window.Config{Name: name, Limits: []window.Limit{months(most)}}))
	for _, a := range s.attempts {
		if a.admitted() && a.decision.At.Before(s.stopped) {
			acknowledged[a.event]++
		}
	}
	for event, record := range s.received {
		key := s.key(name, event)
		if err := client.Do(t.Context(), client.B().Set().Key(key).Value(record).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		lost[event] = max(0, acknowledged[event]-(most-free(t, copies, event)))
	}
	return lost
}

// ofVictim tells whether the event belongs to the shard that lost its master.
func ofVictim(event string) bool { return slices.Contains(shardEvents[victim], event) }

// check holds that calls ended in time, and that the other shards were served as ever, as far as their masters did not refuse.
func (s *story) check(t *testing.T, in incident) {
	t.Helper()
	var others, down, late int
	for _, a := range s.attempts {
		if a.took > timeout+slack {
			t.Errorf("%s: a call took %v: %v", a.event, a.took, a.err)
		}
		switch {
		case a.err == nil || ofVictim(a.event):
			continue
		case strings.Contains(a.err.Error(), "nothing came within"): // a busy machine
			late++
		case in.settings.coverage == "no" || !errors.Is(a.err, window.ErrOutage):
			t.Fatalf("%s belongs to another shard: %v", a.event, a.err)
		case strings.Contains(a.err.Error(), "CLUSTERDOWN"):
			down++
		}
		others++
	}
	if late > callers || others > late && down == 0 {
		t.Errorf("of the other shards, %d decisions failed, %d of them late, %d as masters refused", others, late, down)
	}
	before, during := s.median(false), s.median(true)
	if in.settings.coverage == "no" && (during == 0 || during > 2*before+10*time.Millisecond) { // else they refuse for a while
		t.Errorf("a decision of the other shards took %v before and %v during the incident", before, during)
	}
}

// checkLoss holds that no more was lost than was acknowledged after the begin, and that the shard was served again in time.
func (s *story) checkLoss(t *testing.T, in incident, sum tally) {
	t.Helper()
	after, last, lost := s.after(s.begins)
	gap, takeover := s.without(true), s.over.Sub(s.begins)
	goesOnFor := in.settings.nodeTimeout * 3 / 2
	if in.settings.replicas != "0" {
		goesOnFor = 3 * time.Second // min-replicas-max-lag, in whole seconds
	}
	switch {
	case in.goesOn && lost == 0, !in.goesOn && sum.refused == 0:
		t.Error("a poor test: nothing was lost, or no call was refused")
	case lost > after+callers, !in.goesOn && in.settings.replicas == "0" && lost > callers:
		t.Errorf("%d units were lost of the %d acknowledged after the begin", lost, after)
	case last > goesOnFor+slack:
		t.Errorf("the old master acknowledged for %v", last)
	case in.settings.replicas == "0" && gap > takeover+engine.RecoveryDelay+slack+time.Second:
		t.Errorf("no decision for %v, though the replica took over after %v", gap, takeover)
	case sum.uncertain > 10*callers:
		t.Errorf("%d calls ended in doubt", sum.uncertain)
	}
}

// after is how many units of the shard were acknowledged by the old master after a time, for how long, and how many were lost.
func (s *story) after(begin time.Time) (units int64, last time.Duration, lost int64) {
	for _, a := range s.attempts {
		if ofVictim(a.event) && a.admitted() && a.ended().After(begin) && a.decision.At.Before(s.stopped) {
			units++
			last = max(last, a.ended().Sub(begin))
		}
	}
	for _, n := range s.lost {
		lost += n
	}
	return units, last.Round(10 * time.Millisecond), lost
}

// median is what a decision of the other shards took before the incident, or until the replica took over. It is 0 if there is none.
func (s *story) median(during bool) time.Duration {
	var took []time.Duration
	for _, a := range s.attempts {
		if a.err == nil && !ofVictim(a.event) && a.began.Before(s.over) && a.began.After(s.began) == during {
			took = append(took, a.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2].Round(10 * time.Microsecond)
}

// without is how long the shard, or the others, had no decision at a time in which some were asked for.
func (s *story) without(victims bool) (longest time.Duration) {
	attempts := slices.DeleteFunc(slices.Clone(s.attempts), func(a attempt) bool { return a.err != nil || ofVictim(a.event) != victims })
	slices.SortFunc(attempts, func(a, b attempt) int { return a.ended().Compare(b.ended()) })
	for i := range max(0, len(attempts)-1) {
		longest = max(longest, attempts[i+1].ended().Sub(attempts[i].ended()))
	}
	return longest.Round(10 * time.Millisecond)
}

// tell prints a row of the table in docs/failover.md.
func (s *story) tell(t *testing.T, sum tally) {
	t.Helper()
	after, last, lost := s.after(s.began)
	t.Logf("| %s | %v | %v | %v | %v, %v | %d in %v | %d | %d | %d | %d |", strings.NewReplacer("TestFailover/", "", "_", " ", "/", ", ").Replace(t.Name()), s.over.Sub(s.began).Round(10*time.Millisecond),
		s.without(true), s.without(false), s.median(false), s.median(true), after, last, lost, sum.beyond, sum.uncertain, sum.refused)
}

// TestPausedMaster pauses a master for 3 s whose replica does not take over: what it was sent meanwhile it executes then, for callers
// who left in time and know that it may be so.
func TestPausedMaster(t *testing.T) {
	if testing.Short() {
		t.Skip("it pauses for 3 s")
	}
	nodes := redistest.Replicated(t)
	noCoverage.set(t, nodes)
	master := nodes.MasterOf(t, slotOf(shardEvents[victim][0]))
	heir := nodes.ReplicaOf(t, master)
	must(heir.Do(t.Context(), "CONFIG", "SET", "cluster-replica-no-failover", "yes").ToString())
	t.Cleanup(func() {
		must(heir.Do(context.Background(), "CONFIG", "SET", "cluster-replica-no-failover", "no").ToString())
	})
	stories := newStories(t, nodes)
	for _, s := range stories {
		s.await(t, 1500)
	}
	master.Pause(t)
	began := time.Now()
	eventually(t, "the pause lasts 3 s", func() bool { return time.Since(began) > 3*time.Second })
	over := time.Now()
	nodes.Heal(t)
	for _, s := range stories {
		s.began, s.over = began, over
		t.Run(s.kind.name, s.outlastsAPause)
	}
	if nodes.MasterOf(t, slotOf(shardEvents[victim][0])) != master {
		t.Error("a poor test: the replica took over")
	}
}

func (s *story) outlastsAPause(t *testing.T) {
	s.end(t)
	s.check(t, incident{settings: noCoverage})
	sum := settle(t, s.limiter, most, s.attempts, nil)
	t.Logf("%+v, %v without a decision", sum, s.without(true))
	if sum.uncertain == 0 || sum.counted == sum.admitted {
		t.Error("a poor test: the master executed nothing after the pause")
	}
}

// TestGracefulFailover lets every replica take over under load, of a cluster whose old masters then restart as empty nodes: so does a rolling
// restart go, and so each shard is led in turn by a node that never saw the script. No caller notices, and nothing is lost.
func TestGracefulFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("it restarts every master")
	}
	const most = 100_000
	nodes := redistest.Replicated(t)
	all := contest(t, func(k kind) limiter { return k.of(t, nodes.Options(nil), months(most)) }, inTurn(slices.Concat(shardEvents[:]...)))
	await := func(more int64) {
		for _, c := range all {
			c.await(t, more)
		}
	}
	for _, events := range shardEvents {
		await(500)
		old := nodes.MasterOf(t, slotOf(events[0]))
		heir := nodes.Failover(t, old)
		eventually(t, "nobody asks the old master any more", func() bool {
			before := redirected(t, old)
			await(250)
			return redirected(t, old) == before
		})
		old.Kill(t)
		nodes.Heal(t)
		nodes.Failover(t, heir)
	}
	judge(t, all, func(t *testing.T, c *contestant) {
		attempts := c.end()
		clean(t, attempts)
		t.Logf("%+v", settle(t, c.limiter, most, attempts, nil))
	})
}

// redirected tells how many calls of scripts the server refused, as it does with those for another node.
func redirected(t *testing.T, s *redistest.Server) string {
	t.Helper()
	info := must(s.Do(t.Context(), "INFO", "commandstats").ToString())
	rejected := regexp.MustCompile(`cmdstat_evalsha:.*rejected_calls=\d+`).FindString(info)
	if rejected == "" {
		t.Fatalf("no rejected calls of EVALSHA in %s", info)
	}
	return rejected
}

// TestClockStepsBack hands a shard from a master whose clock is ahead to one that is right. That frees nothing, and locks nobody out for
// longer than promised. A server's own clock cannot be set here: the first master is told the time by Config.Now.
func TestClockStepsBack(t *testing.T) {
	nodes := redistest.Replicated(t)
	quick.set(t, nodes)
	var all []stepBack
	for _, ahead := range []time.Duration{40 * time.Second, time.Hour} { // less than Per, and much more
		for _, k := range kinds {
			s := stepBack{k, nodes.NewClient(t, nil), window.Config{Name: redistest.Key(t), Limits: []window.Limit{window.PerMinute(4)}}, ahead}
			admit(t, s.clock(ahead), full, 4)
			admit(t, s.clock(ahead), half, 2)
			all = append(all, s)
		}
	}
	old := nodes.MasterOf(t, slotOf(full))
	if nodes.Failover(t, old); nodes.MasterOf(t, slotOf(full)) == old {
		t.Fatal("no failover")
	}
	for _, s := range all {
		t.Run(fmt.Sprint(s.ahead, " ", s.name), s.isShort)
	}
}

// full and half are events whose units the master that is ahead counts: all, and half of them.
var full, half = shardEvents[victim][0], shardEvents[victim][1]

// A stepBack is of a master's clock, which was so far ahead.
type stepBack struct {
	kind
	client rueidis.Client
	cfg    window.Config
	ahead  time.Duration
}

// clock is the limiter where the clock is so far ahead.
func (s stepBack) clock(ahead time.Duration) limiter {
	s.cfg.Now = func() time.Time { return time.Now().Add(ahead) }
	return must(s.make(s.client, s.cfg))
}

// admit has a limiter admit so many units.
func admit(t *testing.T, l limiter, event string, n int) {
	t.Helper()
	for range n {
		if d, err := l.Allow(t.Context(), event); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v %v", event, d, err)
		}
	}
}

func (s stepBack) isShort(t *testing.T) {
	right := must(s.make(s.client, s.cfg))
	admit(t, right, half, 2)
	for _, event := range []string{full, half} {
		d, err := right.Allow(t.Context(), event)
		if err != nil || d.Allowed || d.RetryAfter > 2*time.Minute {
			t.Errorf("%s: %+v %v", event, d, err)
		}
		if wait := s.ahead + time.Minute; s.name == "window" && s.ahead < time.Minute && (d.RetryAfter > wait || d.RetryAfter < wait-30*time.Second) {
			t.Errorf("%s: denied for %v, though its units were dated %v ahead", event, d.RetryAfter, s.ahead)
		}
		admit(t, s.clock(d.RetryAfter), event, 1)
	}
}

// TestScriptFlush has masters forget the script, again and again, under load. No caller notices.
func TestScriptFlush(t *testing.T) {
	eachClient(t, func(t *testing.T, k kind) {
		const most = 100_000
		nodes := redistest.Replicated(t)
		l := k.of(t, nodes.Options(nil), months(most))
		crowd := load(t, callers, l.Allow, inTurn(slices.Concat(shardEvents[:]...)))
		for range 10 {
			for _, events := range shardEvents {
				crowd.await(t, 100)
				master := nodes.MasterOf(t, slotOf(events[0]))
				must(master.Do(t.Context(), "CONFIG", "RESETSTAT").ToString())
				must(master.Do(t.Context(), "SCRIPT", "FLUSH").ToString())
				eventually(t, "the script is sent anew", func() bool {
					return strings.Contains(must(master.Do(t.Context(), "INFO", "commandstats").ToString()), "cmdstat_eval:")
				})
			}
		}
		attempts := crowd.end()
		clean(t, attempts)
		t.Logf("%+v", settle(t, l, most, attempts, nil))
	})
}
