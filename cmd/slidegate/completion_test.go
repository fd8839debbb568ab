//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// completions lists what a user types after "slidegate" before pressing the tab key, and what the
// line contains afterwards. The directory contains one file, log.svg.
var completions = [][2]string{
	{"rep", "replay"},
	{"replay --sug", "replay --suggest"},
	{"replay --picture l", "replay --picture log.svg"},
	{"replay --picture=l", "replay --picture=log.svg"},
	{"replay --json l", "replay --json log.svg"},
	{"replay --limit l", "replay --limit l"}, // the flag's value is not a file
	{"inspect l", "inspect l"},               // the argument is not a file
	{"proxy --sug", "proxy --sug"},           // the flag belongs to another command
	{"reset proxy --y", "reset proxy --yes"}, // the argument is not a command
	{"completion z", "completion zsh"},
	{"help au", "help audit"},
}

// TestCompletionInBash types into a bash that has loaded the script.
func TestCompletionInBash(t *testing.T) {
	typed(t, "bash", "", "--rcfile", "setup", "-i")
}

// TestCompletionInZsh types into a zsh that has loaded the script.
func TestCompletionInZsh(t *testing.T) {
	typed(t, "zsh", "autoload -U compinit && compinit -D\n", "-d", "-i")
}

// TestCompletionInFish asks a fish that has loaded the script what it would complete.
func TestCompletionInFish(t *testing.T) {
	fish := shell(t, "fish", "")
	for _, c := range completions {
		typed, want := c[0], c[1]
		cmd := exec.Command(fish, "--no-config", "-c", `source script; complete -C "$argv[1]"`, "slidegate "+typed)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		got := typed
		if completed, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\t"); completed != "" {
			got = typed[:strings.LastIndexByte(typed, ' ')+1] + completed
		}
		if got != want {
			t.Errorf("%q becomes %q, want %q", typed, got, want)
		}
	}
}

// typed types each line and the tab key into a shell on a terminal. It compares the arguments that
// slidegate would receive.
func typed(t *testing.T, name, setup string, args ...string) {
	path := shell(t, name, setup+". ./script\nPS1= PS2=\nslidegate() { printf '\\n=%s=\\n' \"$*\"; }\n")
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "TERM=dumb", "ZDOTDIR=.", "HISTFILE=")
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Skipf("no terminal to test on: %v", err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	for _, c := range completions {
		_, _ = io.WriteString(terminal, "slidegate "+c[0]+"\t\n")
	}
	_, _ = io.WriteString(terminal, "exit\n")
	screen, _ := io.ReadAll(terminal) // on Linux, reading a terminal ends with an error
	_ = cmd.Wait()
	got := regexp.MustCompile(`(?m)^=(.*)=\r?$`).FindAllStringSubmatch(string(screen), -1)
	if len(got) != len(completions) {
		t.Fatalf("%s ran %d of %d lines:\n%s", name, len(got), len(completions), screen)
	}
	for i, c := range completions {
		if got := got[i][1]; got != c[1] {
			t.Errorf("%q becomes %q, want %q", c[0], got, c[1])
		}
	}
}

// shell returns the path of a shell. It changes to a directory that contains the shell's completion
// script, a file log.svg, and startup files with the commands in setup.
func shell(t *testing.T, name, setup string) string {
	t.Helper()
	path := redistest.Program(t, name, name)
	script, stderr, _ := command(t.Context(), "completion", name)
	if stderr != "" {
		t.Fatal(stderr)
	}
	t.Chdir(t.TempDir())
	for file, text := range map[string]string{"script": script, "setup": setup, ".zshrc": setup, "log.svg": ""} {
		if err := os.WriteFile(filepath.Join(".", file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return path
}
