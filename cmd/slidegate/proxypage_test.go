package main

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxy"
	"github.com/slidegate/slidegate/cmd/slidegate/internal/proxyserver"
)

// TestProxyPage checks that the program accepts the command lines in docs/proxy.md, the help text
// and the README, and that the page lists exactly the existing metrics.
func TestProxyPage(t *testing.T) {
	page := text(t, "../../docs/proxy.md")
	lines := regexp.MustCompile(`(?m)^    slidegate proxy ((?:.*\\\n)*.*)`).FindAllStringSubmatch(page+proxyserver.Command{}.Help()+text(t, "../../README.md"), -1)
	for _, line := range lines {
		args := words(strings.ReplaceAll(line[1], "\\\n", " "))
		var c proxyserver.Command
		k, err := kong.New(&c)
		if err == nil {
			_, err = k.Parse(args)
		}
		if err != nil {
			t.Errorf("%q: %v", args, err)
			continue
		}
		if cfg, err := c.Config(slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%q: %v", args, err)
		} else if _, err = proxy.New(cfg); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	if len(lines) < 7 {
		t.Errorf("only %d command lines", len(lines))
	}
	p := startProxy(t, os.Args[0], "--to", "http://127.0.0.1:1", "--limit", "5/1h", "--redis", "127.0.0.1:1")
	names := regexp.MustCompile(`\bslidegate_[a-z_]+`)
	shown, told := names.FindAllString(page, -1), names.FindAllString(get(t, p.admin+"/metrics"), -1)
	for i, name := range told {
		told[i] = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
	}
	slices.Sort(shown)
	slices.Sort(told)
	if diff := cmp.Diff(slices.Compact(shown), slices.Compact(told)); diff != "" {
		t.Errorf("metrics (-page +program):\n%s", diff)
	}
}

// words splits a command line like a shell, but supports only single quotes.
func words(line string) (words []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}
