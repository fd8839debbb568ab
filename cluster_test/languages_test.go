package cluster_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/keys"
	"github.com/slidegate/slidegate/internal/test/redistest"
	"github.com/slidegate/slidegate/lua"
	"github.com/slidegate/slidegate/window"
)

// language is a programming language for which ../languages has a client.
type language struct {
	name   string
	folder string // the folder in ../languages that contains check and the client
	suffix string // of its source files

	// run returns a command that runs a program. others lists the files that the program imports.
	run func(t *testing.T, program string, others ...string) *exec.Cmd
}

var languages = []language{{"Python", "python", ".py", python}, {"TypeScript", "typescript", ".ts", typescript}}

// file returns the path of a file in the language's folder.
func (l language) file(name string) string {
	return filepath.Join("../languages", l.folder, name+l.suffix)
}

// python returns a command that runs a program using the first Python in which redis-py is
// installed.
func python(t *testing.T, program string, _ ...string) *exec.Cmd {
	t.Helper()
	path := redistest.Tool(t, "redis-py, the package redis of Python", func() (string, bool) {
		for _, name := range []string{"python3", "/usr/bin/python3"} {
			if exec.Command(name, "-c", "import redis.cluster").Run() == nil {
				return name, true
			}
		}
		return "", false
	}, "python3-redis")
	return exec.Command(path, "-B", program)
}

// nodeModules is where Node finds the packages installed by npm ci in languages/typescript. If they
// are missing, Node uses those of Debian.
const nodeModules = "../languages/typescript/node_modules"

// typescript compiles a program, and returns a command that runs it using Node.
func typescript(t *testing.T, program string, others ...string) *exec.Cmd {
	t.Helper()
	environ := append(os.Environ(), "NODE_PATH="+must(filepath.Abs(nodeModules))+string(filepath.ListSeparator)+"/usr/share/nodejs")
	esbuild := redistest.Tool(t, "Node with redis and esbuild, as by npm ci in languages/typescript", func() (string, bool) {
		node := exec.Command("node", "-e", "require.resolve('redis')")
		node.Env = environ
		if node.Run() != nil {
			return "", false
		}
		path, err := exec.LookPath(nodeModules + "/.bin/esbuild")
		if err != nil {
			path, err = exec.LookPath("esbuild")
		}
		return path, err == nil
	}, "nodejs", "node-redis", "esbuild")
	compiled := t.TempDir()
	args := append([]string{"--platform=node", "--format=cjs", "--outdir=" + compiled, program}, others...)
	if out, err := exec.Command(esbuild, args...).CombinedOutput(); err != nil {
		t.Fatalf("esbuild: %v: %s", err, out)
	}
	cmd := exec.Command("node", filepath.Join(compiled, strings.TrimSuffix(filepath.Base(program), ".ts")+".js"))
	cmd.Env = environ
	return cmd
}

// task describes what a program must do. The program receives it as a JSON argument.
type task struct {
	Mode    string      `json:"mode"`
	Lua     string      `json:"lua"` // the directory that contains the scripts
	URL     string      `json:"url"`
	Cluster bool        `json:"cluster"`
	Timeout int         `json:"timeout"` // in seconds
	Name    string      `json:"name"`
	Event   string      `json:"event"` // in hex, like Secret
	Secret  string      `json:"secret,omitempty"`
	Limits  []taskLimit `json:"limits"`
	Callers int         `json:"callers"`
}

type taskLimit struct {
	Max int64 `json:"max"`
	Per int64 `json:"per"`
}

// program is a running program that executes a task.
type program struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// start starts a program that executes the given task.
func (l language) start(t *testing.T, do task) *program {
	t.Helper()
	do.Lua = must(filepath.Abs("../lua"))
	if do.Timeout == 0 {
		do.Timeout = 60 // the machine may be busy
	}
	p := &program{cmd: l.run(t, l.file("check"), l.file("slidegate"))}
	p.cmd.Args = append(p.cmd.Args, string(must(json.Marshal(do))))
	p.cmd.Stderr = &p.stderr
	p.in, p.out = must(p.cmd.StdinPipe()), bufio.NewReader(must(p.cmd.StdoutPipe()))
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	return p
}

// ready waits until the program has connected and made a call. The program then waits for release.
func (p *program) ready(t *testing.T) {
	t.Helper()
	defer p.killLate().Stop()
	if line, _ := p.out.ReadString('\n'); line != "ready\n" {
		p.end(t)
		t.Fatalf("the program printed %q", line)
	}
}

// killLate kills the program after a minute, which ends all reads of its output.
func (p *program) killLate() *time.Timer {
	return time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
}

func (p *program) release() { _, _ = io.WriteString(p.in, "\n") }

// end waits until the program has exited without an error, and returns its output.
func (p *program) end(t *testing.T) string {
	t.Helper()
	defer p.killLate().Stop()
	out, _ := io.ReadAll(p.out)
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s%s", err, out, p.stderr.String())
	}
	return string(out)
}

// vector represents the part of a history in lua/testdata/vectors.json that these tests need.
type vector struct {
	Name, Record string
	Calls        []struct {
		Key   string
		Argv  []string
		Reply []int64
	}
}

// vectors represents the parts of lua/testdata/vectors.json that these tests need.
type vectors struct {
	Histories []vector
	Joints    []struct {
		Calls []struct{ Argv []string }
	}
}

func readVectors(t *testing.T) (all vectors) {
	t.Helper()
	if err := json.Unmarshal(must(os.ReadFile("../lua/testdata/vectors.json")), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// deployment is the Redis that limiters share: a server or a cluster.
type deployment struct {
	client rueidis.Client
	task   task // includes its address
}

// eachDeployment runs a test on a server, and on a cluster.
func eachDeployment(t *testing.T, test func(*testing.T, deployment)) {
	t.Run("server", func(t *testing.T) {
		test(t, deployment{redistest.Client(t), task{URL: "redis://" + redistest.Addr(t)}})
	})
	t.Run("cluster", func(t *testing.T) {
		nodes := redistest.Replicated(t)
		reachable(t, nodes)
		test(t, deployment{nodes.NewClient(t, nil), task{URL: "redis://" + nodes.All[0].Addr(), Cluster: true}})
	})
}

// reachable skips the test if programs in other languages cannot connect to the addresses that the
// cluster's nodes announce.
func reachable(t *testing.T, nodes *redistest.Nodes) {
	t.Helper()
	ranges := must(nodes.All[0].Do(t.Context(), "CLUSTER", "SLOTS").ToArray())
	master := must(must(ranges[0].ToArray())[2].ToArray())
	addr := net.JoinHostPort(must(master[0].ToString()), strconv.FormatInt(must(master[1].ToInt64()), 10))
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Skipf("The nodes announce addresses that this machine cannot reach, for example because Docker runs in a virtual machine: %v.", err)
	}
	conn.Close()
}

// TestVectorsInLanguages checks that each client uses the same keys and arguments as Go, and
// returns the same decisions.
func TestVectorsInLanguages(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) { l.start(t, task{Mode: "vectors"}).end(t) })
	}
}

// TestRecordsInLanguages checks that the same calls at the same times leave the same keys and bytes
// in Redis as in Go.
func TestRecordsInLanguages(t *testing.T) {
	eachDeployment(t, func(t *testing.T, on deployment) {
		for _, l := range languages {
			t.Run(l.name, func(t *testing.T) {
				do := on.task
				do.Mode, do.Name = "redis", redistest.Key(t)
				l.start(t, do).end(t)
				for i, h := range readVectors(t).Histories {
					key := fmt.Sprint(do.Name, "-", i) + strings.TrimPrefix(h.Calls[0].Key, h.Name)
					record, err := on.client.Do(t.Context(), on.client.B().Get().Key(key).Build()).ToString()
					if err != nil && !rueidis.IsRedisNil(err) {
						t.Fatal(err)
					}
					if got := hex.EncodeToString([]byte(record)); got != h.Record {
						t.Errorf("%s holds %s, and that of Go %s", key, got, h.Record)
					}
				}
			})
		}
	})
}

// loggedDecision represents a decision with its time in ms, by the server's clock.
type loggedDecision struct {
	allowed bool
	at      int64
}

// UnmarshalJSON parses a decision in a program's output.
func (a *loggedDecision) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&a.allowed, &a.at})
}

// TestThreeLanguages checks that 64 callers in Go, Python and TypeScript can share a single limit
// of 50. Each caller takes one unit. The exact log of all decisions must show that together they
// never exceed the limit, and that no caller is denied while a unit is free. On the cluster, the
// slot moves meanwhile, and a secret hides the keys.
func TestThreeLanguages(t *testing.T) {
	eachDeployment(t, func(t *testing.T, on deployment) {
		short := redistest.UnlessShort(time.Second, 400*time.Millisecond)
		limits := []window.Limit{{Max: 20, Per: short}, {Max: 50, Per: 5 * short}}
		cfg := window.Config{Name: redistest.Key(t), Limits: limits, Timeout: time.Minute}
		do := on.task
		do.Mode, do.Name, do.Event, do.Callers = "crowd", cfg.Name, hex.EncodeToString([]byte("alice")), 21
		if do.Cluster {
			cfg.Secret = []byte("sixteen bytes...")
			do.Secret = hex.EncodeToString(cfg.Secret)
		}
		for _, l := range limits {
			do.Limits = append(do.Limits, taskLimit{l.Max, l.Per.Milliseconds()})
		}
		key := cfg.Name + ":{" + keys.Tag(cfg.Secret, "alice") + "}:w"
		logs := runAllLanguages(t, must(window.New(window.On(on.client), cfg)), do, func() { moveSlotOf(t, on, key) })
		checkLogs(t, limits, logs)
		// On a slow machine, the key may have expired, but there must be no other.
		if all := keysOf(t, on, cfg.Name); len(all) > 0 && (len(all) > 1 || all[0] != key) {
			t.Errorf("the keys are %q, not %s", all, key)
		}
	})
}

// runAllLanguages runs a task with 22 callers in Go and 21 in each other language at the same time.
// It returns the decisions by language.
func runAllLanguages(t *testing.T, l *window.Limiter, do task, meanwhile func()) map[string][]loggedDecision {
	t.Helper()
	var programs []*program
	for _, other := range languages {
		p := other.start(t, do)
		p.ready(t)
		programs = append(programs, p)
	}
	ours := make(chan []loggedDecision)
	for _, p := range programs {
		p.release()
	}
	for range 22 {
		go func() { ours <- takeOne(t, l) }()
	}
	meanwhile()
	logs := map[string][]loggedDecision{}
	for range 22 {
		logs["Go"] = append(logs["Go"], <-ours...)
	}
	for i, p := range programs {
		var log []loggedDecision
		if out := p.end(t); json.Unmarshal([]byte(out), &log) != nil {
			t.Fatalf("the program printed %s", out)
		}
		logs[languages[i].name] = log
	}
	return logs
}

// takeOne sends attempts until one is allowed, or until the last limit denies one. It retries after
// RetryAfter, but after no more than 20 ms.
func takeOne(t *testing.T, l *window.Limiter) (log []loggedDecision) {
	for {
		d, err := l.Allow(t.Context(), "alice")
		if err != nil {
			t.Error(err)
			return log
		}
		log = append(log, loggedDecision{d.Allowed, d.At.UnixMilli()})
		if d.Allowed || d.Usage[1].RetryAfter > 0 {
			return log
		}
		<-time.After(min(d.RetryAfter, 20*time.Millisecond))
	}
}

// checkLogs compares the decisions with the limits: no interval of length Per may contain more than
// Max units, and at each denial at least one limit must be at its Max.
func checkLogs(t *testing.T, limits []window.Limit, logs map[string][]loggedDecision) {
	t.Helper()
	var taken []int64
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		log, allowed := logs[name], 0
		for _, a := range log {
			if a.allowed {
				taken = append(taken, a.at)
				allowed++
			}
		}
		t.Logf("%s: %d of %d attempts are allowed", name, allowed, len(log))
		if allowed < 50-22-21 {
			t.Errorf("%s took %d units: the other languages cannot have taken more than 43 of 50", name, allowed)
		}
	}
	within := func(l window.Limit, at int64) (n int64) {
		for _, other := range taken {
			if other <= at && other > at-l.Per.Milliseconds() {
				n++
			}
		}
		return n
	}
	for name, log := range logs {
		for _, a := range log {
			first, second := within(limits[0], a.at), within(limits[1], a.at)
			if first > limits[0].Max || second > limits[1].Max || !a.allowed && first < limits[0].Max && second < limits[1].Max {
				t.Errorf("%s: %+v, when %d and %d were in use", name, a, first, second)
			}
		}
	}
}

// moveSlotOf moves the slot of a key to another master of the cluster, and back.
func moveSlotOf(t *testing.T, on deployment, key string) {
	t.Helper()
	if on.task.Cluster {
		moveSlot(t, redistest.Replicated(t), keys.Slot(key))
	}
}

// keysOf returns the keys of a limiter.
func keysOf(t *testing.T, on deployment, name string) (all []string) {
	t.Helper()
	for _, node := range on.client.Nodes() {
		all = append(all, must(node.Do(t.Context(), node.B().Keys().Pattern(name+":*").Build()).AsStrSlice())...)
	}
	slices.Sort(all)
	return slices.Compact(all) // replicas have the same keys
}

// TestLostReplyInLanguages checks that a call whose reply is lost returns an error and is not sent
// again.
func TestLostReplyInLanguages(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name+"/server", func(t *testing.T) { checkLostCall(t, l, task{}, loseReply, redistest.Start) })
		t.Run(l.name+"/cluster", func(t *testing.T) { checkLostCall(t, l, task{Cluster: true}, loseReply, startCluster) })
	}
}

func loseReply(f *redistest.Faults) { f.LoseReply("EVALSHA") }

// TestHungInLanguages checks that a call that gets no reply in time returns an error and is not
// sent again.
func TestHungInLanguages(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits until calls give up")
	}
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			checkLostCall(t, l, task{Timeout: 3}, func(f *redistest.Faults) { f.Delay(time.Hour) }, redistest.Start)
		})
	}
}

// TestClusterGoneInPython checks that calls fail with the documented errors if no node responds,
// although redis-py raises an error of another class.
func TestClusterGoneInPython(t *testing.T) {
	t.Parallel()
	faults := &redistest.Faults{}
	p, _ := languages[0].startBehindFaults(t, faults, task{Cluster: true, Mode: "gone"}, startCluster)
	p.ready(t)
	faults.Refuse(1 << 30)
	faults.Cut()
	p.release()
	if got := p.end(t); strings.Count(got, "\n") != 3 { // an error of another class would end the program at once
		t.Errorf("it got %q", got)
	}
}

// checkLostCall runs a program that makes three calls to a server that does not know the script.
// inject makes the second call fail.
func checkLostCall(t *testing.T, l language, do task, inject func(*redistest.Faults), start func(testing.TB, ...string) *redistest.Server) {
	t.Helper()
	t.Parallel()
	faults := &redistest.Faults{}
	do.Mode = "lost"
	p, server := l.startBehindFaults(t, faults, do, start)
	p.ready(t)
	inject(faults)
	p.release()
	p.ready(t)
	faults.Delay(0)
	faults.Cut()
	p.release()
	if got := p.end(t); got != "3\n" {
		t.Errorf("after three calls %s units are in use", got)
	}
	if raw := must(server.Do(t.Context(), "KEYS", "*").AsStrSlice()); len(raw) != 1 {
		t.Errorf("the keys are %q", raw)
	}
}

// startBehindFaults starts a task on a server behind faults.
func (l language) startBehindFaults(t *testing.T, faults *redistest.Faults, do task, start func(testing.TB, ...string) *redistest.Server) (*program, *redistest.Server) {
	t.Helper()
	addr, connect := proxy(t, faults)
	_, port, _ := net.SplitHostPort(addr)
	server := start(t, "--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", port)
	connect <- server.Addr()
	do.URL, do.Name, do.Event, do.Limits = "redis://"+addr, redistest.Key(t), hex.EncodeToString([]byte("e")), []taskLimit{{10, 3_600_000}}
	return l.start(t, do), server
}

// startCluster starts a cluster with a single node.
func startCluster(tb testing.TB, args ...string) *redistest.Server {
	tb.Helper()
	server, command := redistest.Start(tb, append(args, "--cluster-enabled", "yes")...), []string{"CLUSTER", "ADDSLOTS"}
	for slot := range keys.Slots {
		command = append(command, strconv.Itoa(slot))
	}
	must("", server.Do(tb.Context(), command...).Error())
	redistest.Eventually(tb, "the cluster is healthy", func() bool {
		return strings.Contains(must(server.Do(tb.Context(), "CLUSTER", "INFO").ToString()), "cluster_state:ok")
	})
	return server
}

// proxy returns an address that leads through faults to a server. The server's address must be sent
// to connect.
func proxy(t *testing.T, faults *redistest.Faults) (addr string, connect chan<- string) {
	t.Helper()
	l, to := must(net.Listen("tcp", "127.0.0.1:0")), make(chan string, 1)
	t.Cleanup(func() { l.Close() })
	go func() {
		server := <-to
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := faults.Dial(context.Background(), server, &net.Dialer{}, nil)
			if err != nil {
				near.Close()
				continue
			}
			go copyAndClose(near, far)
			go copyAndClose(far, near)
		}
	}()
	return l.Addr().String(), to
}

// copyAndClose copies from one connection to another, and closes both at the end.
func copyAndClose(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
	from.Close()
}

func pageOnLanguages() string { return string(must(os.ReadFile("../docs/languages.md"))) }

// TestKeysOfLanguagesPage compares the tables in docs/languages.md with the keys and calls of Go.
func TestKeysOfLanguagesPage(t *testing.T) {
	page, known := pageOnLanguages(), readVectors(t)
	call, joint := known.Histories[0].Calls[1], known.Joints[0].Calls[0]
	want := []string{
		`    EVALSHA <sha1> 1 login:{198.51.100.7}:w allow "" ` + strings.Join(call.Argv[2:], " ") + "\n",
		"    " + strings.Trim(fmt.Sprint(call.Reply), "[]") + "\n",
		` joint "" ` + strings.Join(joint.Argv[2:], " ") + "\n",
	}
	for _, row := range []struct{ shown, event, secret string }{
		{"", "198.51.100.7", ""},
		{"", "Zoë Müller", ""},
		{"", "{a}", ""},
		{"", "~a", ""},
		{"129 times x", strings.Repeat("x", 129), ""},
		{"", "alice@example.com", "sixteen bytes..."},
	} {
		var secret []byte
		if row.secret != "" {
			secret = []byte(row.secret)
		}
		secretCell := strings.TrimSuffix(" "+row.secret, " ") + " |"
		want = append(want, "| "+cmp.Or(row.shown, row.event)+" |"+secretCell+" `login:{"+keys.Tag(secret, row.event)+"}:w` |\n")
	}
	for _, text := range want {
		if !strings.Contains(page, text) {
			t.Errorf("docs/languages.md lacks %s", text)
		}
	}
}

// TestExamplesInLanguages runs the examples in docs/languages.md, next to copies of the files that
// they import.
func TestExamplesInLanguages(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			_, example, _ := strings.Cut(pageOnLanguages(), "```"+strings.ToLower(l.name)+"\n")
			example, _, _ = strings.Cut(example, "```")
			dir := t.TempDir()
			for name, text := range map[string]string{
				"main" + l.suffix:      strings.ReplaceAll(example, "127.0.0.1:6379", redistest.Start(t).Addr()),
				"slidegate" + l.suffix: string(must(os.ReadFile(l.file("slidegate")))),
				"window.lua":           lua.Window.Source,
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := l.run(t, filepath.Join(dir, "main"+l.suffix), filepath.Join(dir, "slidegate"+l.suffix))
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil || strings.ToLower(string(out)) != "true 0 0\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestTypes type-checks the TypeScript code.
func TestTypes(t *testing.T) {
	tsc, err := exec.LookPath(nodeModules + "/.bin/tsc")
	if err != nil {
		t.Skip("This test needs TypeScript: run npm ci in languages/typescript.")
	}
	if out, err := exec.Command(tsc, "-p", filepath.Dir(nodeModules)).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
