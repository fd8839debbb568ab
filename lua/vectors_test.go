package lua_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	ar1go "github.com/slidegate/slidegate/ar1"
	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/redistest"
	windowgo "github.com/slidegate/slidegate/window"
)

// vectorsFile is the file that ports to other languages are checked against.
const vectorsFile = "testdata/vectors.json"

// aboutVectors explains in the file itself how to read it.
var aboutVectors = []string{
	"What a port of Slidegate must reproduce. docs/languages.md explains it. Written by: go test ./lua -run TestVectors -update",
	"Events, secrets and records are bytes, in hex. Everything else is as sent. No number is above 2^53.",
	"keys: the tag of an event, and its key under the limiter name, in window and in ar1.",
	"histories: calls on one event of one limiter, in order. now is ARGV[2], in ms for window and in us for ar1.",
	"limits: max in units, per and resolution in ms. Without a resolution, the default applies.",
	"calls: what the Go library sends, what Redis replies, and the decision that Go derives from it.",
	"n are units. A refund gives back what the call with index of in the same history counted. If that is nothing, nothing is sent.",
	"decision: retryAfter and resetAfter are in ms, at is in the unit of now. usage has an entry for each limit.",
	"record: the value of the key after the last call.",
	"groups: calls for several events of one limiter, in order, each with one unit. The key of the event foreign holds the text hello.",
	"keys, argv and reply are those of one call. answers has the decision or the error of each event, in order: those of a call for it alone.",
	"joints: joint calls, in order. A check asks for n units of an event under the limiter at that index. Foreign is an event of the first limiter.",
	"joint: the decisions on the checks, whether all were counted, and the longest wait. If a check fails, the call has its error instead.",
}

// A keyVector is the key of an event.
type keyVector struct {
	Name   string `json:"name"`
	Event  string `json:"event"`
	Secret string `json:"secret,omitempty"`
	Tag    string `json:"tag"`
	Window string `json:"window"`
	AR1    string `json:"ar1"`
}

// A historyVector is a limiter, and calls on one event.
type historyVector struct {
	What        string        `json:"what"`
	Script      string        `json:"script"`
	Name        string        `json:"name"`
	Event       string        `json:"event"`
	Secret      string        `json:"secret,omitempty"`
	CountDenied bool          `json:"countDenied,omitempty"`
	Limits      []limitVector `json:"limits"`
	Record      string        `json:"record"`

	calls []callVector
}

// A groupVector is a limiter, and calls for several events.
type groupVector struct {
	What        string        `json:"what"`
	Script      string        `json:"script"`
	Name        string        `json:"name"`
	Secret      string        `json:"secret,omitempty"`
	CountDenied bool          `json:"countDenied,omitempty"`
	Limits      []limitVector `json:"limits"`
	Foreign     string        `json:"foreign"`

	calls []groupCall
}

// A groupCall is a call for several events.
type groupCall struct {
	Events  []string       `json:"events"`
	Now     int64          `json:"now"`
	Keys    []string       `json:"keys"`
	Argv    []string       `json:"argv"`
	Reply   []any          `json:"reply"`
	Answers []answerVector `json:"answers"`
}

// A jointVector is several limiters of window, and calls that count in all of them or in none.
type jointVector struct {
	What     string          `json:"what"`
	Limiters []limiterVector `json:"limiters"`
	Foreign  string          `json:"foreign"`

	calls []jointCall
}

type limiterVector struct {
	Name   string        `json:"name"`
	Secret string        `json:"secret,omitempty"`
	Limits []limitVector `json:"limits"`

	player *vectorPlayer
}

// A jointCall is a joint call.
type jointCall struct {
	Checks []checkVector        `json:"checks"`
	Now    int64                `json:"now"`
	Keys   []string             `json:"keys"`
	Argv   []string             `json:"argv"`
	Reply  []any                `json:"reply"`
	Joint  *jointDecisionVector `json:"joint,omitempty"`
	Error  string               `json:"error,omitempty"`
}

// A checkVector asks for n units of an event under the limiter at an index.
type checkVector struct {
	Limiter int    `json:"limiter"`
	Event   string `json:"event"`
	N       int64  `json:"n"`
}

type jointDecisionVector struct {
	Allowed    bool              `json:"allowed"`
	RetryAfter int64             `json:"retryAfter"`
	Decisions  []*decisionVector `json:"decisions"`
}

// An answerVector is the decision on an event, or the error.
type answerVector struct {
	Decision *decisionVector `json:"decision,omitempty"`
	Error    string          `json:"error,omitempty"`
}

type limitVector struct {
	Max        int64 `json:"max"`
	Per        int64 `json:"per"`
	Resolution int64 `json:"resolution,omitempty"`
}

// A callVector is a call of the Go library.
type callVector struct {
	Call     string          `json:"call"`
	N        int64           `json:"n,omitempty"`
	Of       *int            `json:"of,omitempty"`
	Now      int64           `json:"now"`
	Key      string          `json:"key,omitempty"`
	Argv     []string        `json:"argv,omitempty"`
	Reply    []int64         `json:"reply,omitempty"`
	Decision *decisionVector `json:"decision,omitempty"`

	got windowgo.Decision
}

type decisionVector struct {
	Allowed    bool          `json:"allowed"`
	Granted    int64         `json:"granted"`
	Counted    int64         `json:"counted"`
	Remaining  int64         `json:"remaining"`
	RetryAfter int64         `json:"retryAfter"`
	At         int64         `json:"at"`
	Usage      []usageVector `json:"usage"`
}

type usageVector struct {
	Used       int64 `json:"used"`
	Remaining  int64 `json:"remaining"`
	RetryAfter int64 `json:"retryAfter"`
	ResetAfter int64 `json:"resetAfter"`
}

var (
	vectorSecret = "sixteen bytes..."
	vectorEvents = []string{
		"198.51.100.7", "alice@example.com", "2001:db8::1", "tenant/42?plan=pro&x=<>", "~a", "a~b", "%41", "{a}", "}{", " ", "a b\tc\r\n",
		"Zoë Müller", "\x00\x01\x7f\x80\xff", strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("\xff", 128), strings.Repeat("{", 200),
	}
)

// vectorHistories holds histories that the Go limiters play. A call is the time after midnight, its
// name, and its units or the index of the call to refund.
var vectorHistories = []struct {
	what string
	script
	event       string
	secret      string
	countDenied bool
	limits      []string
	calls       []string
}{
	{"two exact limits", window, "198.51.100.7", "", false, []string{"1/5s", "5/1h"}, []string{
		"0s peek 1", "0s allow 1", "2s allow 1", "2s peek 1", "5s allow 1", "10s allow 1", "15s allow 1", "20s allow 1", "25s allow 1", "26s refund 8", "26s refund 7", "26s allow 1", "30m allow 1",
	}},
	{"units, and buckets of a sixtieth", window, "alice@example.com", "", false, []string{"1000/1d", "300/1m", "61/1s"}, []string{
		"0s allow 61", "10ms allow 1", "20ms allow 61", "1s allow 61", "1500ms peek 61", "2s allowUpTo 61", "2100ms allowUpTo 500", "3s allowUpTo 500", "4s allowUpTo 500", "5s charge 40", "5s charge 500", "5s allow 1", "1h allow 1", "12h refund 0", "12h allow 61",
	}},
	{"custom resolutions", window, "a", "", false, []string{"200/1h@15s", "500/1d@6m", "12/1m@1ms", "70/90s@1s500ms", "100/1m30s1ms"}, []string{
		"1ms allow 3", "2ms allow 1", "15s allow 9", "22s charge 20", "23s charge 1", "24s allow 1", "1h allow 12",
	}},
	{"the default resolution of uneven spans", window, "b", "", false, []string{"61/1ms", "61/59ms", "61/61ms", "61/12345ms", "60/12346ms", "9007199254740992/876000h"}, []string{
		"0s allow 1", "0s charge 1", "1ms allow 60",
	}},
	{"denials count", window, "203.0.113.9", "", true, []string{"2/10s", "100/1h"}, []string{
		"0s allow 1", "1s allow 1", "2s allow 1", "3s peek 1", "3s allow 2", "20s allowUpTo 5", "20s refund 5", "21s allow 1", "22s charge 3",
	}},
	{"a clock that steps back", window, "c", "", false, []string{"3/1m", "100/1h"}, []string{
		"10m allow 1", "9m59s allow 1", "9m59s peek 1", "1m allow 1", "10m30s allow 1", "10m31s allow 1",
	}},
	{"an event that is forgotten", window, "d", "", false, []string{"2/1m"}, []string{"0s allow 2", "1s reset", "2s peek 2", "3s allow 1", "4s refund 3", "4s reset"}},
	{"a secret and a hostile event", window, "}{\x00\xff~%", vectorSecret, false, []string{"5/1m"}, []string{"0s allow 2", "1s allow 4", "2s allow 3"}},
	{"an event that is long", window, strings.Repeat("long ", 100), "", false, []string{"5/1m"}, []string{"0s allow 2", "1s allow 3", "2s allow 1"}},
	{"two levels", ar1, "198.51.100.7", "", false, []string{"5/10s", "100/1h"}, []string{
		"0s peek 5", "0s allow 5", "1ms allow 1", "2s allow 1", "2000001us allow 1", "4s peek 3", "7s allow 3", "7s refund 3", "8s allow 3", "9s reset", "9s allow 1",
	}},
	{"levels where denials count", ar1, "203.0.113.9", "", true, []string{"2/10s"}, []string{"0s allow 1", "1s allow 1", "2s allow 1", "3s allow 2", "8s allow 1", "9s refund 0", "20s allow 1"}},
	{"levels of large limits", ar1, "e", "", false, []string{"10000000/1d", "10000/1s", "9999999/1000h"}, []string{"0s allow 9999", "1us allow 1", "2us allow 10000", "500ms allow 3333", "499ms allow 1", "1s peek 10000"}},
	{"a secret, levels and a hostile event", ar1, "}{\x00\xff~%", vectorSecret, false, []string{"5/1m"}, []string{"0s allow 2", "1s allow 4", "2s allow 3"}},
}

// vectorGroups holds calls for several events. A call is the time after midnight and its events.
// The event named foreign fails.
var vectorGroups = []struct {
	what string
	script
	secret      string
	countDenied bool
	limits      []string
	calls       [][]string
}{
	{"three events", window, "", false, []string{"1/5s", "5/1h"}, [][]string{
		{"0s", "198.51.100.7", "alice@example.com", "2001:db8::1"}, {"2s", "2001:db8::1", "new", "198.51.100.7"}, {"5s", "198.51.100.7", "new"},
	}},
	{"an event that occurs twice, and one that fails", window, "", false, []string{"2/10s"}, [][]string{
		{"0s", "a", "foreign", "b", "a", "a"}, {"1s", "foreign", "b"}, {"1s", "b", "foreign"}, {"1s", "b"},
	}},
	{"many units, and a secret", window, vectorSecret, false, []string{"300/1m", "1000/1d"}, [][]string{{"0s", "}{\x00\xff~%", "foreign", "a"}, {"1s", "a", "a"}}},
	{"events whose denials count", window, "", true, []string{"1/10s", "100/1h"}, [][]string{{"0s", "a", "b", "a"}, {"1s", "a", "foreign", "c"}}},
	{"levels of several events", ar1, "", false, []string{"2/10s", "100/1h"}, [][]string{{"0s", "a", "b", "foreign", "a", "a"}, {"2s", "b", "a", "c"}}},
	{"levels of several events where denials count", ar1, "", true, []string{"1/10s"}, [][]string{{"0s", "a", "a", "foreign"}, {"3s", "b", "a"}}},
}

// vectorJoints holds joint calls. A call is the time after midnight, and its checks: the index of
// the limiter, the event and units. The event named foreign of the first limiter fails.
var vectorJoints = []struct {
	what     string
	secret   string
	limiters [][]string
	calls    []string
}{
	{"an address and an account", "", [][]string{{"1/5s", "5/1h"}, {"3/1m"}}, []string{
		"0s 0/198.51.100.7/1 1/alice@example.com/1", // allowed
		"1s 0/198.51.100.7/1 1/alice@example.com/2", // denied by the first
		"2s 0/198.51.100.7/1 1/alice@example.com/3", // denied by both
		"2s 1/alice@example.com/2 0/2001:db8::1/1",
		"3s 1/alice@example.com/1 0/192.0.2.1/1", // denied by the first: 192.0.2.1 was never used
		"4s 0/foreign/1 1/new/1",
		"4s 1/new/3", // so the previous call counted nothing
	}},
	{"requests and tokens of one event, with a secret", vectorSecret, [][]string{{"3/1m"}, {"1000/1m", "9000/1h"}}, []string{
		"0s 0/key/1 1/key/700", "1s 0/key/1 1/key/400", "1s 0/key/1 1/key/300",
	}},
	{"a clock that steps back", "", [][]string{{"1/10s"}, {"2/5s"}}, []string{
		"1m 0/a/1 1/b/1", "0s 0/a/1 1/b/1", "19999ms 0/a/1 1/b/1", "20s 0/a/1 1/b/1",
	}},
}

// TestVectors checks that testdata/vectors.json contains what the Go library sends, what Redis
// replies, and what the Go library derives from the reply.
func TestVectors(t *testing.T) {
	got := vectorsText(t, vectorKeys(), playVectors(t), playGroups(t), playJoints(t))
	if *update {
		if err := os.WriteFile(vectorsFile, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(must(os.ReadFile(vectorsFile))), got); diff != "" {
		t.Errorf("ports are checked against this file; if they are still correct: go test ./lua -run Vectors -update (-want +got)\n%s", diff)
	}
}

// vectorKeys returns the keys of vectorEvents, without and with a secret.
func vectorKeys() (all []keyVector) {
	for _, secret := range []string{"", vectorSecret} {
		for _, event := range vectorEvents {
			tag := keys.Tag(secretBytes(secret), event)
			all = append(all, keyVector{"login", hexOf(event), hexOf(secret), tag, "login:{" + tag + "}:w", "login:{" + tag + "}:a"})
		}
	}
	return all
}

// playVectors plays vectorHistories with the Go limiters, on a dedicated server.
func playVectors(t *testing.T) (all []historyVector) {
	t.Helper()
	client := redistest.Start(t).Client(t)
	for i, h := range vectorHistories {
		v := historyVector{
			What: h.what, Script: h.name, Name: "vectors-" + strconv.Itoa(i), Event: hexOf(h.event), Secret: hexOf(h.secret), CountDenied: h.countDenied,
		}
		var p *vectorPlayer
		p, v.Limits = newVectorPlayer(client, h.script, windowgo.Config{Name: v.Name, Secret: secretBytes(h.secret), CountDenied: h.countDenied}, h.limits)
		for _, line := range h.calls {
			v.calls = append(v.calls, p.play(t, h.event, line, v.calls))
		}
		record, err := client.Do(t.Context(), client.B().Get().Key(v.calls[0].Key).Build()).ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
		v.Record = hexOf(record)
		all = append(all, v)
	}
	return all
}

// A vectorPlayer makes calls of a Go limiter. It is also that limiter's client, and records the
// last command and reply.
type vectorPlayer struct {
	rueidis.Client
	script
	limiter vectorLimiter
	now     time.Time
	command []string
	reply   rueidis.RedisResult
}

// vectorLimiter is a limiter of either kind. A window limiter has more verbs.
type vectorLimiter interface {
	AllowN(ctx context.Context, event string, n int64) (windowgo.Decision, error)
	PeekN(ctx context.Context, event string, n int64) (windowgo.Decision, error)
	Refund(ctx context.Context, event string, d windowgo.Decision) error
	Reset(ctx context.Context, event string) error
}

// newVectorPlayer returns the player of a limiter, and its limits.
func newVectorPlayer(client rueidis.Client, s script, cfg windowgo.Config, limits []string) (p *vectorPlayer, all []limitVector) {
	p = &vectorPlayer{Client: client, script: s}
	cfg.Now = p.clock
	for _, text := range limits {
		l := must(windowgo.ParseLimit(text))
		cfg.Limits = append(cfg.Limits, l)
		all = append(all, limitVector{l.Max, l.Per.Milliseconds(), l.Resolution.Milliseconds()})
	}
	p.make(cfg)
	return p, all
}

func (p *vectorPlayer) clock() time.Time { return p.now }

func (p *vectorPlayer) make(cfg windowgo.Config) {
	if p.name == "window" {
		p.limiter = must(windowgo.New(windowgo.On(p), cfg))
		return
	}
	p.limiter = must(ar1go.New(windowgo.On(p), ar1go.Config{Name: cfg.Name, Secret: cfg.Secret, CountDenied: cfg.CountDenied, Now: cfg.Now, Limits: cfg.Limits}))
}

// Do forwards a command, and records both the command and its reply.
func (p *vectorPlayer) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	p.command = slices.Clone(command.Commands())
	p.reply = p.Client.Do(ctx, command)
	return p.reply
}

// playGroups plays vectorGroups on two dedicated servers. On one, the Go limiters decide on each
// event alone. On the other, one call decides on all events, and must give the same answers.
func playGroups(t *testing.T) (all []groupVector) {
	t.Helper()
	alone, among := redistest.Start(t).Client(t), redistest.Start(t).Client(t)
	for i, h := range vectorGroups {
		v := groupVector{
			What: h.what, Script: h.name, Name: "vectors-groups-" + strconv.Itoa(i), Secret: hexOf(h.secret), CountDenied: h.countDenied, Foreign: hexOf("foreign"),
		}
		var p *vectorPlayer
		p, v.Limits = newVectorPlayer(alone, h.script, windowgo.Config{Name: v.Name, Secret: secretBytes(h.secret), CountDenied: h.countDenied}, h.limits)
		key := v.Name + ":{" + keys.Tag(secretBytes(h.secret), "foreign") + "}:" + h.name[:1]
		for _, client := range []rueidis.Client{alone, among} {
			must("", client.Do(t.Context(), client.B().Set().Key(key).Value("hello").Build()).Error())
		}
		for _, call := range h.calls {
			v.calls = append(v.calls, p.playGroup(t, among, call[0], call[1:]))
		}
		all = append(all, v)
	}
	return all
}

// playGroup makes a call for each event, and then one call for all events on the other server.
func (p *vectorPlayer) playGroup(t *testing.T, among rueidis.Client, at string, events []string) groupCall {
	t.Helper()
	p.now = time.UnixMilli(midnight).Add(must(time.ParseDuration(at)))
	g, alone := groupCall{Now: p.instant(at)}, [][]any{}
	for i, event := range events {
		reply, answer := p.playAlone(t, event)
		alone, g.Answers = append(alone, reply), append(g.Answers, answer)
		g.Events, g.Keys, g.Argv = append(g.Events, hexOf(event)), append(g.Keys, p.command[3]), withUnits(p.command[4:], slices.Repeat([]string{"1"}, i+1)...)
	}
	command := among.B().Eval().Script(p.source).Numkeys(int64(len(g.Keys))).Key(g.Keys...).Arg(g.Argv...).Build()
	g.Reply = must(among.Do(t.Context(), command).ToAny()).([]any)
	for i, part := range slices.Collect(slices.Chunk(g.Reply, len(g.Reply)/len(events))) {
		if diff := cmp.Diff(alone[i], part[:len(alone[i])]); diff != "" {
			t.Fatalf("%s %q, event %d (-alone +in one call)\n%s", at, events, i, diff)
		}
	}
	return g
}

// playAlone makes a call for one event. If it fails, the reply is only the error.
func (p *vectorPlayer) playAlone(t *testing.T, event string) (reply []any, a answerVector) {
	t.Helper()
	d, err := p.limiter.AllowN(t.Context(), event, 1)
	if e, failed := rueidis.IsRedisErr(p.reply.Error()); failed {
		return []any{e.Error()}, answerVector{Error: e.Error()}
	}
	if err != nil {
		t.Fatal(err)
	}
	return must(p.reply.ToAny()).([]any), answerVector{Decision: p.decision(d)}
}

// playJoints plays vectorJoints on a dedicated server.
func playJoints(t *testing.T) (all []jointVector) {
	t.Helper()
	client := redistest.Start(t).Client(t)
	for i, h := range vectorJoints {
		v := jointVector{What: h.what, Foreign: hexOf("foreign")}
		for k, limits := range h.limiters {
			l := limiterVector{Name: fmt.Sprintf("vectors-joints-%d-%d", i, k), Secret: hexOf(h.secret)}
			l.player, l.Limits = newVectorPlayer(client, window, windowgo.Config{Name: l.Name, Secret: secretBytes(h.secret)}, limits)
			v.Limiters = append(v.Limiters, l)
		}
		key := v.Limiters[0].Name + ":{" + keys.Tag(secretBytes(h.secret), "foreign") + "}:w"
		must("", client.Do(t.Context(), client.B().Set().Key(key).Value("hello").Build()).Error())
		for _, line := range h.calls {
			v.calls = append(v.calls, v.play(t, client, strings.Fields(line)))
		}
		all = append(all, v)
	}
	return all
}

// play makes a joint call. It takes the keys and limits from a peek of the Go limiters, which
// writes nothing.
func (v jointVector) play(t *testing.T, client rueidis.Client, words []string) jointCall {
	t.Helper()
	c := jointCall{Now: window.instant(words[0])}
	var units, limits []string
	for _, word := range words[1:] {
		parts := strings.Split(word, "/")
		limiter, n := must(strconv.Atoi(parts[0])), must(strconv.ParseInt(parts[2], 10, 64))
		p := v.Limiters[limiter].player
		p.now = time.UnixMilli(c.Now)
		_, _ = p.limiter.PeekN(t.Context(), parts[1], n)
		c.Checks, c.Keys = append(c.Checks, checkVector{limiter, hexOf(parts[1]), n}), append(c.Keys, p.command[3])
		units = append(units, parts[2])
		limits = append(append(limits, strconv.Itoa(len(v.Limiters[limiter].Limits))), p.command[7:]...)
	}
	c.Argv = slices.Concat([]string{"joint", digits(c.Now)}, units, []string{strconv.Itoa(len(c.Keys))}, limits)
	command := client.B().Eval().Script(window.source).Numkeys(int64(len(c.Keys))).Key(c.Keys...).Arg(c.Argv...).Build()
	c.Reply = must(client.Do(t.Context(), command).ToAny()).([]any)
	c.Joint, c.Error = v.meaning(c.Checks, c.Reply)
	return c
}

// meaning decodes a reply into a decision, or the first error in it.
func (v jointVector) meaning(checks []checkVector, reply []any) (*jointDecisionVector, string) {
	j := &jointDecisionVector{Allowed: true}
	for _, c := range checks {
		limits := v.Limiters[c.Limiter].Limits
		part := reply[:2+3*len(limits)]
		reply = reply[len(part):]
		if text, failed := part[0].(string); failed {
			return nil, text
		}
		d := decisionOf(c.N, limits, part)
		j.Decisions = append(j.Decisions, d)
		j.Allowed, j.RetryAfter = j.Allowed && d.Allowed, max(j.RetryAfter, d.RetryAfter)
	}
	for _, d := range j.Decisions {
		if j.Allowed {
			d.Counted = d.Granted
		}
	}
	return j, ""
}

// decisionOf decodes a part of a joint reply into the decision on n units, as if nothing was
// counted.
func decisionOf(n int64, limits []limitVector, part []any) *decisionVector {
	d := &decisionVector{Allowed: part[0] == int64(1), At: part[1].(int64), Remaining: limits[0].Max}
	for i, l := range limits {
		row := part[2+3*i:]
		u := usageVector{Used: row[0].(int64), RetryAfter: row[1].(int64), ResetAfter: row[2].(int64)}
		u.Remaining = max(0, l.Max-u.Used)
		d.Usage, d.Remaining = append(d.Usage, u), min(d.Remaining, u.Remaining)
		if d.Allowed {
			d.Granted = n
		} else {
			d.RetryAfter = max(d.RetryAfter, u.RetryAfter)
		}
	}
	return d
}

// play makes the call that a line describes, after the earlier calls of the same history.
func (p *vectorPlayer) play(t *testing.T, event, line string, before []callVector) callVector {
	t.Helper()
	words := append(strings.Fields(line), "0")
	p.now = time.UnixMilli(midnight).Add(must(time.ParseDuration(words[0])))
	c := callVector{Call: words[1], Now: p.instant(words[0])}
	number := must(strconv.Atoi(words[2]))
	if c.N = int64(number); c.Call == "refund" {
		c.N, c.Of = 0, &number
	}
	p.command = nil
	if err := p.call(t, event, &c, before); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if p.command != nil {
		c.Key, c.Argv, c.Reply = p.command[3], p.command[4:], must(p.reply.AsIntSlice())
	}
	return c
}

func (p *vectorPlayer) call(t *testing.T, event string, c *callVector, before []callVector) (err error) {
	t.Helper()
	switch c.Call {
	case "refund":
		return p.limiter.Refund(t.Context(), event, before[*c.Of].got)
	case "reset":
		return p.limiter.Reset(t.Context(), event)
	case "allow":
		c.got, err = p.limiter.AllowN(t.Context(), event, c.N)
	case "peek":
		c.got, err = p.limiter.PeekN(t.Context(), event, c.N)
	case "allowUpTo":
		c.got, err = p.limiter.(*windowgo.Limiter).AllowUpTo(t.Context(), event, c.N)
	case "charge":
		c.got, err = p.limiter.(*windowgo.Limiter).Charge(t.Context(), event, c.N)
	}
	c.Decision = p.decision(c.got)
	return err
}

// decision converts a decision of the Go library, with times in ms or in the unit of the script.
func (p *vectorPlayer) decision(d windowgo.Decision) *decisionVector {
	v := &decisionVector{
		Allowed: d.Allowed, Granted: d.Granted, Counted: d.Counted, Remaining: d.Remaining, RetryAfter: d.RetryAfter.Milliseconds(),
		At: d.At.UnixMicro() / p.unit.Microseconds(),
	}
	for _, u := range d.Usage {
		v.Usage = append(v.Usage, usageVector{u.Used, u.Remaining, u.RetryAfter.Milliseconds(), u.ResetAfter.Milliseconds()})
	}
	return v
}

// vectorsText formats the file, with a line for each key and each call.
func vectorsText(t *testing.T, all []keyVector, histories []historyVector, groups []groupVector, joints []jointVector) string {
	t.Helper()
	var text, several, jointly []string
	for _, h := range histories {
		text = append(text, withCalls(h, h.calls))
	}
	for _, g := range groups {
		several = append(several, withCalls(g, g.calls))
	}
	for _, j := range joints {
		jointly = append(jointly, withCalls(j, j.calls))
	}
	file := `{"about":[` + "\n" + strings.Join(lines(aboutVectors), ",\n") + "],\n" +
		`"keys":[` + "\n" + strings.Join(lines(all), ",\n") + "],\n" +
		`"histories":[` + "\n" + strings.Join(text, ",\n") + "],\n" +
		`"groups":[` + "\n" + strings.Join(several, ",\n") + "],\n" +
		`"joints":[` + "\n" + strings.Join(jointly, ",\n") + "]}\n"
	if !json.Valid([]byte(file)) {
		t.Fatalf("this is not JSON: %s", file)
	}
	return file
}

// withCalls formats a limiter as JSON, with a line for each of its calls.
func withCalls[T any](limiter any, calls []T) string {
	return strings.TrimSuffix(line(limiter), "}") + `,"calls":[` + "\n  " + strings.Join(lines(calls), ",\n  ") + "]}"
}

func lines[T any](all []T) (text []string) {
	for _, v := range all {
		text = append(text, line(v))
	}
	return text
}

// line formats a value as JSON, without escaping < and &.
func line(v any) string {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	must(0, e.Encode(v))
	return strings.TrimSuffix(text.String(), "\n")
}

func hexOf(s string) string { return hex.EncodeToString([]byte(s)) }

// secretBytes returns the bytes of a secret, or nil if the secret is empty.
func secretBytes(secret string) []byte {
	if secret == "" {
		return nil
	}
	return []byte(secret)
}
