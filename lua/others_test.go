package lua_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestOtherLuas plays the histories on the interpreters of Lua 5.1 to 5.4 that it finds, because a
// server may use a different version of Lua than Redis does today. No server runs one of these
// interpreters, so they do not replace the tests on a real server. Half of the calls are for several
// events.
func TestOtherLuas(t *testing.T) {
	eachLua(t, func(t *testing.T, path string) {
		each(t, func(t *testing.T, s script) {
			s.playsAll(t, func(t *testing.T, file string) (text, got string) {
				t.Helper()
				return s.play(t, file, s.mixed(s.spyOnLua(t, path)))
			})
		})
	})
}

// eachLua runs a test on each interpreter that it finds.
func eachLua(t *testing.T, test func(t *testing.T, path string)) {
	if *update {
		t.Skip("only Redis defines the replies")
	}
	lua51(t) // the others are optional
	for _, name := range []string{"lua5.1", "lua5.2", "lua5.3", "lua5.4"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		t.Run(name, func(t *testing.T) { test(t, path) })
	}
}

// spyOnLua returns a spy that runs in a Lua interpreter.
func (s script) spyOnLua(t *testing.T, path string) spy {
	t.Helper()
	call, read := inLua(t, path, s.spied())
	return func(tb testing.TB, events []string, args ...string) (all []answer) {
		tb.Helper()
		names := keysOf("lua:", events)
		call(strings.Join(names, ","), args)
		for _, key := range names {
			all = append(all, readLine(read(tb), key, names[0]))
		}
		return all
	}
}

// inLua runs a script in a Lua interpreter, in which testdata/redis.lua replaces the server. call
// makes a call for keys, and read returns the fields of the next line that the interpreter prints.
func inLua(t *testing.T, path, source string) (call func(keys string, args []string), read func(tb testing.TB) []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "spied.lua")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that a hang is reported here
	cmd := exec.CommandContext(ctx, path, "testdata/redis.lua", file)
	cmd.Stderr = os.Stderr
	in, out := must(cmd.StdinPipe()), bufio.NewReader(must(cmd.StdoutPipe()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait(); cancel() })
	call = func(keys string, args []string) {
		words := []string{keys}
		for _, arg := range args {
			words = append(words, inLine(arg))
		}
		_, _ = io.WriteString(in, strings.Join(words, " ")+"\n") // an interpreter that has ended does not answer
	}
	read = func(tb testing.TB) []string {
		tb.Helper()
		line, err := out.ReadString('\n')
		if err != nil {
			tb.Fatalf("%s ended: %v", path, err)
		}
		return strings.Split(strings.TrimSuffix(line, "\n"), "\t")
	}
	return call, read
}

// inLine returns an argument as testdata/redis.lua reads it.
func inLine(arg string) string {
	if arg == "" {
		return "%"
	}
	var out strings.Builder
	for _, c := range []byte(arg) {
		if c <= ' ' || c == '%' || c > '~' {
			fmt.Fprintf(&out, "%%%02x", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// readLine reads what testdata/redis.lua reports on the event of a key. An error that concerns the
// whole call names the first key.
func readLine(fields []string, key, first string) (a answer) {
	if fields[0] == "error" && strings.Contains(fields[1], key) {
		return failed(fields[1], key)
	} else if fields[0] == "error" {
		return failed(fields[1], first)
	}
	for n := range strings.FieldsSeq(fields[1]) {
		a.reply = append(a.reply, must(strconv.ParseInt(n, 10, 64)))
	}
	a.wrote, a.px, a.stored = fields[2], fields[3], string(must(hex.DecodeString(fields[4])))
	for text := range strings.SplitSeq(strings.TrimSuffix(fields[5], ","), ",") {
		if fields[5] != "" {
			a.texts = append(a.texts, string(must(hex.DecodeString(text))))
		}
	}
	return a
}
