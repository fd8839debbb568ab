package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// startLimit is how long a server may take to start and answer.
const startLimit = time.Minute

// ready is what Redis and Valkey log when they start to answer.
const ready = "Ready to accept connections"

// local runs servers as processes on this machine.
type local struct {
	path     string // the path of redis-server or valkey-server
	noDocker error  // why Docker is not used
	proxy    *proxy // the proxy between the nodes of a cluster; otherwise nil
}

func (l local) String() string {
	return fmt.Sprintf("%s on this machine, without Docker: %v", l.path, l.noDocker)
}

func (l local) node(port int, how launch) node {
	args := how.commandLine(append(how.portFlags(port), "--bind", "127.0.0.1")...)
	p := process{port: port, args: append([]string{l.path}, args...), launch: how}
	if l.proxy == nil {
		return &p
	}
	return &proxied{process: p, proxy: l.proxy}
}

func (l local) cluster() (host, error) {
	l.proxy = newProxy()
	return l, nil
}

// process is a server process with a guard: a shell that waits on a pipe which only the test binary
// holds open. When the test binary closes the pipe or dies, the guard kills the server and removes
// the server's directory.
type process struct {
	port   int
	args   []string // the command
	launch launch

	guard *exec.Cmd     // nil if the server is not running
	hold  io.Closer     // closing it ends the guard
	pid   string        // the server's
	ended chan struct{} // closed when the server has ended
}

const guard = `
trap '' HUP INT TERM
dir=$(mktemp -d "${TMPDIR:-/tmp}/redistest.XXXXXX") && cd "$dir" && cp -R "$1/." . || exit
shift
sh -c 'echo $$; exec "$@"' sh "$@" </dev/null 2>&1 &
exec >/dev/null 2>&1
read -r forever
kill -KILL $!
wait
cd / && rm -rf "$dir"`

func (p *process) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }
func (p *process) peer() string { return p.addr() }

func (p *process) start() error {
	files, err := p.files()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(files) }()
	cmd := exec.Command("sh", append([]string{"-c", guard, "sh", files}, p.args...)...)
	hold, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.guard, p.hold, p.ended = cmd, hold, make(chan struct{})
	return p.awaitReady(bufio.NewReader(out))
}

// files writes the server's files to a new directory, from which the guard copies them.
func (p *process) files() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "redistest-files-"); err != nil {
		return "", err
	}
	for name, text := range p.launch.files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir, err
}

// awaitReady reads the server's log until the server is ready. It discards later lines. The log
// ends when the server ends.
func (p *process) awaitReady(log *bufio.Reader) error {
	late := time.AfterFunc(startLimit, func() { _ = p.hold.Close() })
	defer late.Stop()
	pid, _ := log.ReadString('\n')
	p.pid = strings.TrimSpace(pid)
	said, err := readUntil(log, p.launch.ready)
	go func() {
		defer close(p.ended)
		_, _ = io.Copy(io.Discard, log)
	}()
	if err != nil {
		return errors.Join(fmt.Errorf("%s ended before it was ready: %s", filepath.Base(p.args[0]), said), p.kill())
	}
	return nil
}

// readUntil reads lines up to and including the first that contains word.
func readUntil(r *bufio.Reader, word string) (said string, err error) {
	for err == nil && !strings.Contains(said, word) {
		var line string
		line, err = r.ReadString('\n')
		said += line
	}
	return said, err
}

// kill ends the server by ending its guard, and waits until both have exited.
func (p *process) kill() error {
	if p.guard == nil {
		return nil
	}
	_ = p.hold.Close() // already closed if the server was late
	<-p.ended
	err := p.guard.Wait()
	p.guard = nil
	return err
}

func (p *process) pause() error  { return p.signal("STOP") }
func (p *process) resume() error { return p.signal("CONT") }

func (p *process) isolate() error { return errNoCluster }
func (p *process) rejoin() error  { return errNoCluster }

// signal sends a signal with the shell, because Go does not define STOP and CONT on Windows.
func (p *process) signal(name string) error {
	if p.guard == nil {
		return errors.New("the server is not running")
	}
	return signal(name, p.pid)
}

func signal(name, pid string) error {
	return exec.Command("sh", "-c", `kill -s "$1" "$2"`, "sh", name, pid).Run()
}
