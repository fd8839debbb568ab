//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/test/tlstest"
)

// TestImage builds the image from the Dockerfile and runs it as a proxy. The proxy trusts the
// authorities in the image's ca-certificates.crt: here the one that signed the certificate of
// Redis. With --outage closed, a request is allowed only if Redis decides on it.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a binary and an image")
	}
	t.Parallel()
	needDocker(t)
	ca := tlstest.NewAuthority(t)
	redis, s := ca.Start(t, "--tls-auth-clients", "no"), startServer(t)
	name := fmt.Sprintf("slidegate-test-%d", os.Getpid())
	cmd := exec.Command("docker", "run", "--name", name, "--network", "host", "--read-only", "--cap-drop", "ALL", buildImage(t, ca.File))
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "-fv", name).Run() })
	p := startProxyBy(t, cmd, "--to", s.URL, "--limit", "1/1h", "--outage", "closed", "--redis", "rediss://"+redis.Addr())
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		res, err := http.Get(p.url)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("status %d, want %d", res.StatusCode, want)
		}
	}
}

// needDocker skips the test if Docker does not respond, or fails it if Docker is required.
func needDocker(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	switch err := exec.CommandContext(ctx, "docker", "info").Run(); {
	case err == nil:
	case os.Getenv("SLIDEGATE_DOCKER") == "1":
		t.Fatalf("docker info: %v", err)
	default:
		t.Skipf("This test needs Docker: docker info: %v.", err)
	}
}

// buildImage builds an image that trusts the given authorities, and returns its ID. The image is
// removed when the test ends.
func buildImage(t *testing.T, authorities string) string {
	t.Helper()
	dir, platform := t.TempDir(), "linux/"+runtime.GOARCH
	if err := os.WriteFile(filepath.Join(dir, "ca-certificates.crt"), []byte(text(t, authorities)), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, platform, "slidegate"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{build, exec.Command("docker", "build", "--iidfile", filepath.Join(dir, "id"), "--build-arg", "TARGETPLATFORM="+platform, "-f", "Dockerfile", dir)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	id := strings.TrimSpace(text(t, filepath.Join(dir, "id")))
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", "-f", id).Run() })
	return id
}
