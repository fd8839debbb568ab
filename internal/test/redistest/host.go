package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// dockerLimit is how long Docker may take to answer. Some daemons accept a connection and never
// answer.
const dockerLimit = 5 * time.Second

// errNoServer means that the tests of this binary can run no server.
var errNoServer = errors.New("redistest: no Redis to test on")

// explained is true once a test of this binary has reported why there is no server.
var explained atomic.Bool

// briefly returns err, or a short error if an earlier call has already returned the full
// explanation.
func briefly(err error) error {
	if errors.Is(err, errNoServer) && explained.Swap(true) {
		return fmt.Errorf("%w: another test that failed says why, and what to install", errNoServer)
	}
	return err
}

// theHost returns the host on which this test binary runs its servers.
var theHost = sync.OnceValues(func() (host, error) {
	if !started.inMain {
		return nil, errors.New("redistest: TestMain must call redistest.Main, which removes servers")
	}
	return pickHost()
})

// pickHost returns the first available host: Docker, a server on the PATH, or a server that it is
// allowed to install.
func pickHost() (host, error) {
	h, missing := findDocker(dockerLimit)
	if missing == nil {
		return h, nil
	}
	if os.Getenv("SLIDEGATE_DOCKER") == "1" {
		return nil, fmt.Errorf("%w: SLIDEGATE_DOCKER=1 requires Docker, but it does not answer: %w", errNoServer, missing)
	}
	if h, ok := findLocal(missing); ok {
		return h, nil
	}
	err := aptInstall("no Docker and no redis-server", "redis-server")
	if h, ok := findLocal(missing); ok {
		return h, nil
	}
	return nil, fmt.Errorf("%w: start Docker (%w), or install redis-server or valkey-server (%w)", errNoServer, missing, err)
}

// findLocal looks for a server program on the PATH.
func findLocal(noDocker error) (host, bool) {
	path, ok := findProgram([]string{"redis-server", "valkey-server"})
	return local{path: path, noDocker: noDocker}, ok
}

// Program returns the path of the first program in names that is on the PATH. If none of them is,
// and SLIDEGATE_INSTALL allows it, Program installs the Debian package pkg, which must contain the
// first program in names. If it is not allowed or not able to install the package, the test fails.
// With go test -short, the test is skipped, so that short tests need no program except a server.
func Program(tb testing.TB, pkg string, names ...string) string {
	tb.Helper()
	return Tool(tb, names[0], func() (string, bool) { return findProgram(names) }, pkg)
}

// Tool returns the path that find returns. It is like [Program], but for a tool that consists of
// more than one program, and that may need several packages.
func Tool(tb testing.TB, what string, find func() (path string, ok bool), pkgs ...string) string {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("This test needs %s; run it without -short.", what)
	}
	path, err := findOrInstall(what, find, pkgs...)
	if err != nil {
		tb.Fatalf("This test needs %s: install it (%v), or leave out all such tests by -short.", what, err)
	}
	return path
}

func findOrInstall(what string, find func() (path string, ok bool), pkgs ...string) (string, error) {
	if path, ok := find(); ok {
		return path, nil
	}
	err := aptInstall("no "+what, pkgs...)
	path, ok := find()
	switch {
	case ok:
		return path, nil
	case err == nil:
		err = fmt.Errorf("apt-get has installed %s, but that is not enough", strings.Join(pkgs, " "))
	}
	return "", err
}

func findProgram(names []string) (path string, ok bool) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// install installs the packages in its arguments. It prevents packages from starting servers of
// their own. A package that is installed alone must contain a program of the same name. If that
// program exists already, another test binary has installed the package.
const install = `
if [ $# = 1 ] && command -v "$1"; then exit; fi
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap 'rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod +x $policy
fi
apt-get -q update && apt-get -qy install --no-install-recommends "$@"`

// The reasons why aptInstall does not try to install packages.
var (
	errForbidden = errors.New("apt-get does it as root if SLIDEGATE_INSTALL=1 is set")
	errUnable    = errors.New("apt-get cannot do it here, or not as this user")
)

// aptInstall installs pkgs as root on Debian and its derivatives, if SLIDEGATE_INSTALL allows it.
// It prints what it installs and why.
func aptInstall(why string, pkgs ...string) error {
	if os.Getenv("SLIDEGATE_INSTALL") != "1" {
		return errForbidden
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return errUnable
	}
	fmt.Fprintf(os.Stderr, "redistest: %s: apt-get installs %s\n", why, strings.Join(pkgs, " "))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "flock", append([]string{"/var/lock/slidegate-apt", "sh", "-c", install, "install"}, pkgs...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get: %w: %s", err, out)
	}
	return nil
}
