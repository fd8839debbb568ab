//go:build unix

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/redis/rueidis"
	"github.com/rivo/uniseg"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
	"github.com/slidegate/slidegate/internal/test/redistest"
)

// onTerminal runs the program in the afternoon on a terminal with 80 columns, and returns what the
// terminal shows. If the machine has no terminals, it skips the test. After a minute, it closes the
// terminal, which ends the program and fails the test.
func onTerminal(t *testing.T, rows uint16, args ...string) string {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no terminal to test on: %v", err)
	}
	hangUp := func() { _, _ = terminal.Close(), tty.Close() }
	defer hangUp()
	late := time.AfterFunc(time.Minute, hangUp)
	defer late.Stop()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: rows, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	run(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: tty, Err: tty, Now: func() time.Time { return afternoon }})
	if _, err := tty.WriteString("\n.\n"); err != nil {
		t.Fatal(err)
	}
	var screen strings.Builder
	for b := make([]byte, 1024); !strings.Contains(screen.String(), "\n."); {
		n, err := terminal.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		screen.Write(b[:n])
	}
	text, _, _ := strings.Cut(screen.String(), "\r\n.")
	return text
}

// colourful sets up the environment of a terminal with colours, wherever the test runs.
func colourful(t *testing.T) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
}

// sequence matches the escape sequences that the program writes to a terminal.
var sequence = regexp.MustCompile("\x1b\\[[0-9;?]*[a-zA-Z]")

// checkFits fails the test if a text does not fit above the prompt on an 80 x 24 terminal.
func checkFits(t *testing.T, name, text string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(sequence.ReplaceAllString(text, ""), "\n"), "\n")
	if len(lines) > 23 {
		t.Errorf("%s: %d lines", name, len(lines))
	}
	for _, line := range lines {
		if n := uniseg.StringWidth(line); n > 80 {
			t.Errorf("%s: %d columns: %s", name, n, line)
		}
	}
}

// mainUses returns what the terminal shows for the main uses of each command.
func mainUses(t *testing.T) map[string]string {
	t.Helper()
	server := redistest.Start(t)
	s := &service{name: "login", client: server.NewClient(t, func(*rueidis.ClientOption) {})}
	const login, address = "1/5s,5/1h,20/1d", "198.51.100.7"
	s.count(t, login, address, 1, 21*h, 20*h, 9*h, 8*h+50*m, 8*h+40*m, 4*h, 48*m, 31*m, 30*m, 12*m, 2*time.Second)
	s.count(t, login, "bob", 1, 2*h, 30*m)
	s.raise(t, "5/1h,100/1d", "key-7", 1, 3*h, 50*m, 40*m, 30*m, 20*m, 10*m, 9*m, 8*m)
	g := guard(t, &service{name: "login", client: s.client})
	g.fail(t, "alice", "192.0.2.31", append(seconds(30*m, 5), seconds(20*m, 5)...)...)
	g.failBoth(t, "carol", "203.0.113.5", append(seconds(30*m, 5), seconds(20*m, 5)...), append(seconds(9*m, 4), 20*time.Second))
	t.Chdir(t.TempDir())
	if err := os.WriteFile("auth.log", []byte(loginNotes()), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := " --redis " + server.Addr() + " "
	shown := map[string]string{}
	for name, args := range map[string]string{
		"help":               "help",
		"replay":             "replay",
		"replay-file":        "replay --limit 5/1h auth.log",
		"replay-compare":     "replay --compare 5/1h --compare 1/5s,10/1h,20/1d --compare 3/1m,10/1h,20/1d,100/7d",
		"replay-login":       "replay --login",
		"replay-ar1":         "replay --estimator ar1",
		"inspect":            "inspect" + redis + "--limit " + login + " login " + address,
		"inspect-stored":     "inspect" + redis + "login " + address,
		"inspect-others":     "inspect" + redis + "--limit 5/1h,5/10m " + s.name + " " + address,
		"inspect-ar1":        "inspect" + redis + "--ar1 --limit 5/1h,100/1d " + s.name + " key-7",
		"inspect-nobody":     "inspect" + redis + "--limit 5/1h " + s.name + " nobody",
		"inspect-login":      "inspect" + redis + "--login --secret-file " + g.file + " login alice 192.0.2.31",
		"inspect-challenged": "inspect" + redis + "--login --challenged --secret-file " + g.file + " login carol 203.0.113.5",
		"reset":              "reset --yes" + redis + "login bob",
		"mistake":            "replay --by POST_/login",
	} {
		text := strings.ReplaceAll(onTerminal(t, 24, strings.Fields(args)...), "\r\n", "\n")
		shown[name] = strings.ReplaceAll(text, server.Addr(), "127.0.0.1:16379")
	}
	return shown
}

// TestTerminal compares what an 80 x 24 terminal shows with the files in testdata/terminal, where
// ^[ represents an escape character. To look at such a file: sed 's/\^\[/\x1b/g' FILE.
func TestTerminal(t *testing.T) {
	colourful(t)
	t.Setenv("COLUMNS", "80") // kong takes the width of help texts from standard output
	goldens, err := filepath.Abs(filepath.Join("testdata", "terminal"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range mainUses(t) {
		checkFits(t, name, text)
		checkGolden(t, filepath.Join(goldens, name+".golden"), strings.ReplaceAll(text, "\x1b", "^["))
	}
}

// TestTopFits checks that a list of many limiters, and of one limiter's many events, fits an 80 x
// 24 terminal.
func TestTopFits(t *testing.T) {
	colourful(t)
	server := redistest.Start(t)
	client := server.Client(t)
	fleet(t, client)
	for i := range 20 {
		(&service{name: fmt.Sprint("api.", i), client: client}).count(t, "5/1h", strings.Repeat("long ", 20), 1, 20*m)
		(&service{name: "login", client: client}).count(t, "5/1h,20/1d", fmt.Sprint(i, strings.Repeat(" 長い", 20)), 2, 20*m)
	}
	for _, args := range []string{"", "login", "--limit 5/1h login"} {
		text := strings.ReplaceAll(onTerminal(t, 24, strings.Fields("top --redis "+server.Addr()+" "+args)...), "\r\n", "\n")
		checkFits(t, args, text)
	}
}

// TestHelpFits checks that the help text of each command has at most 60 lines on a terminal with 80
// columns, and fits it.
func TestHelpFits(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	line := reflect.TypeFor[commandLine]()
	for i := range line.NumField() {
		field := line.Field(i)
		if _, isCommand := field.Tag.Lookup("cmd"); !isCommand {
			continue
		}
		help, _, _ := command(t.Context(), "help", strings.ToLower(field.Name))
		lines := strings.Split(strings.TrimSuffix(help, "\n"), "\n")
		if n := widest(lines); n > 80 || len(lines) > 60 || len(lines) < 10 {
			t.Errorf("%s: %d lines, %d columns\n%s", field.Name, len(lines), n, help)
		}
		checkFlagsShown(t, strings.ToLower(field.Name), help)
	}
}

// checkFlagsShown checks that the page about a command names its flags, except those that all
// commands have.
func checkFlagsShown(t *testing.T, name, help string) {
	t.Helper()
	page := text(t, "../../docs/"+cmp.Or(map[string]string{"reset": "inspect", "override": "overrides"}[name], name)+".md")
	for _, flag := range regexp.MustCompile(`(?m)^ +(?:-., )?(--[a-z0-9-]+)`).FindAllStringSubmatch(help[strings.LastIndex(help, "\nFlags:"):], -1) {
		if !strings.HasPrefix(flag[1], "--redis") && flag[1] != "--help" && flag[1] != "--version" && !strings.Contains(page, flag[1]) {
			t.Errorf("docs has no word about %s of %s", flag[1], name)
		}
	}
}

// widest returns the width of the widest line.
func widest(lines []string) (widest int) {
	for _, line := range lines {
		widest = max(widest, uniseg.StringWidth(line))
	}
	return widest
}

// TestVerdictIsLast checks that on a terminal a report ends with its verdict, in bold, and a
// command that works.
func TestVerdictIsLast(t *testing.T) {
	colourful(t)
	next := regexp.MustCompile(`(?s)\n\x1b\[1m[^\n]+\x1b\[22m\nnext: slidegate (.*)$`)
	for _, args := range []string{
		"replay", "replay --limit 9007199254740992/1d@1h", "replay --compare 5/1h --compare 1/5s,10/1h", "replay --compare 5/1h --compare 6/1h --picture limits.svg",
		"replay --login", "replay --login --picture logins.svg", "replay --estimator ar1", "replay --estimator ar1 --compare 5/1h --compare 10/1h",
		"replay :: -dash.csv", "replay :: \x01.csv", "replay --compare 5/1h --compare 6/1h :: limits.svg", // a log
	} {
		t.Chdir(t.TempDir()) // for pictures
		if _, log, _ := strings.Cut(args, " :: "); log != "" && os.WriteFile(log, []byte("1,alice\n"), 0o600) != nil {
			t.Fatal(log)
		}
		text := strings.ReplaceAll(onTerminal(t, 24, strings.Fields(strings.ReplaceAll(args, "::", "--"))...), "\r\n", "\n")
		end := next.FindStringSubmatch(text)
		if end == nil {
			t.Errorf("%s: %q", args, text)
			continue
		}
		words := strings.Fields(strings.ReplaceAll(end[1], "\\\n", ""))
		if _, stderr, status := command(t.Context(), words...); status != 0 {
			t.Errorf("%s proposes %q: status %d, %s", args, words, status, stderr)
		}
	}
}

// TestPlain checks that a terminal whose user wants no colours gets no escape sequences, and that
// neither does a file or a pipe. A pipe gets the complete lists, which a low terminal shortens.
func TestPlain(t *testing.T) {
	for variable, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		colourful(t)
		t.Setenv(variable, value)
		for _, args := range []string{"replay", "replay --login", "replay --nope"} {
			if text := onTerminal(t, 24, strings.Fields(args)...); strings.Contains(text, "\x1b") {
				t.Errorf("%s, %s: %q", variable, args, text)
			}
		}
	}
	colourful(t)
	low, high := onTerminal(t, 24, "replay"), onTerminal(t, 200, "replay")
	piped, _, _ := command(t.Context(), "replay")
	if sequence.ReplaceAllString(strings.ReplaceAll(high, "\r\n", "\n"), "") != piped {
		t.Errorf("a pipe gets\n%s\nand a high terminal\n%s", piped, high)
	}
	if n, m := strings.Count(low, "2001:db8:"), strings.Count(piped, "2001:db8:"); n != 1 || m != 6 {
		t.Errorf("%d of %d addresses on a low terminal", n, m)
	}
	if strings.Contains(piped, "\x1b") {
		t.Errorf("%q", piped)
	}
}

// watching is a program that runs on its own terminal.
type watching struct {
	*exec.Cmd
	terminal *os.File
	unread   string
}

// startOnTerminal starts the program on an 80 x 24 terminal. Signals end it, even those that the
// tests ignore, as under nohup. After a minute it is killed, which ends all reads from its
// terminal.
func startOnTerminal(t *testing.T, args ...string) *watching {
	t.Helper()
	w := &watching{Cmd: exec.CommandContext(aMinute(t), os.Args[0], args...)}
	w.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // a new program starts with the default action for signals that its parent handles
	defer signal.Stop(handled)
	var err error
	if w.terminal, err = pty.StartWithSize(w.Cmd, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Skipf("no terminal to test on: %v", err)
	}
	t.Cleanup(func() { w.terminal.Close(); _ = w.Process.Kill() })
	return w
}

// until returns the terminal's output up to and including text.
func (w *watching) until(t *testing.T, text string) string {
	t.Helper()
	for b := make([]byte, 1024); !strings.Contains(w.unread, text); {
		n, err := w.terminal.Read(b)
		w.unread += string(b[:n])
		if err != nil {
			t.Fatalf("no %q in %q: %v", text, w.unread, err)
		}
	}
	before, after, _ := strings.Cut(w.unread, text)
	w.unread = after
	return before + text
}

func (w *watching) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := w.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// TestProxyOnTerminal checks that the startup messages of a proxy end with its addresses.
func TestProxyOnTerminal(t *testing.T) {
	w := startOnTerminal(t, "proxy", "--to", "http://127.0.0.1:9", "--limit", "5/1h", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--redis", redistest.Addr(t))
	text := strings.ReplaceAll(w.until(t, "to see who is limited\r\n"), "\r\n", "\n")
	checkFits(t, "proxy", text)
	want := regexp.MustCompile(`^time=[0-9:]{8} msg="budgets are shared" redis=\S+ name=proxy\n.*\n\n\x1b\[1mready: forwarding requests from 127.0.0.1:\d+ to http://127.0.0.1:9\x1b\[22m\nnext: open http://127.0.0.1:\d+/ to see who is limited\n$`)
	if !want.MatchString(text) {
		t.Errorf("%q", text)
	}
	w.signal(t, os.Interrupt)
	if err := w.Wait(); err != nil {
		t.Error(fmt.Errorf("the proxy: %w", err))
	}
}
