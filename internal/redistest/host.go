package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// dockerLimit bounds how long Docker may take to say that it is there: some
// daemons accept a connection and never answer.
const dockerLimit = 5 * time.Second

// theHost is where this test binary runs its servers.
var theHost = sync.OnceValues(func() (host, error) {
	if !started.inMain {
		return nil, errors.New("redistest: TestMain must call redistest.Main, which removes servers")
	}
	return pickHost()
})

// pickHost takes the first that is there: Docker, a server on the PATH, or one that it may install.
func pickHost() (host, error) {
	h, missing := findDocker(dockerLimit)
	if missing == nil {
		return h, nil
	}
	if os.Getenv("SLIDEGATE_REQUIRE_DOCKER") == "1" {
		return nil, fmt.Errorf("redistest: SLIDEGATE_REQUIRE_DOCKER is set, but Docker does not answer: %w", missing)
	}
	if h, ok := findLocal(missing); ok {
		return h, nil
	}
	err := aptInstall()
	if h, ok := findLocal(missing); ok {
		return h, nil
	}
	return nil, fmt.Errorf("redistest: no Redis to test on: start Docker (%w), or install redis-server or valkey-server (%w)", missing, err)
}

// findLocal looks for a server on the PATH.
func findLocal(noDocker error) (host, bool) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return local{path: path, noDocker: noDocker}, true
		}
	}
	return nil, false
}

// install lets test binaries that run side by side install one after the
// other, and keeps the package from starting a server of its own.
const install = `
command -v redis-server && exit
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap 'rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod +x $policy
fi
apt-get -q update && apt-get -qy install --no-install-recommends redis-server`

// aptInstall installs redis-server if SLIDEGATE_INSTALL allows it, on Debian and its kin, as root.
func aptInstall() error {
	if os.Getenv("SLIDEGATE_INSTALL") != "1" {
		return errors.New("apt-get does it as root if SLIDEGATE_INSTALL=1 is set, as make test sets it")
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return errors.New("apt-get cannot do it here, or not as this user")
	}
	fmt.Fprintln(os.Stderr, "redistest: no Docker and no redis-server: apt-get installs redis-server")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "flock", "/var/lock/slidegate-apt", "sh", "-c", install)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get: %w: %s", err, out)
	}
	return nil
}
