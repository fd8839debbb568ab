// Command slidegate shows what limits do: what they would have done to a log (replay), and what they count now for an event in
// Redis (inspect), which it can also forget (reset). And it limits requests on their way to a server (proxy).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

type commandLine struct {
	Version kong.VersionFlag `help:"Tell the version, and the Go that it was built with."`

	Replay  replayCommand  `cmd:"" help:"Show what limits would have done to a log."`
	Inspect inspectCommand `cmd:"" help:"Show what is counted for an event in Redis, and what is free."`
	Reset   resetCommand   `cmd:"" help:"Forget what is counted for an event in Redis."`
	Proxy   proxyCommand   `cmd:"" help:"Limit requests on their way to a server."`
}

// streams are what a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
	now      func() time.Time // nil: what time it is, Redis knows; tests have a time of their own
}

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// exitStatus is the answer of a command that ran well, where that is not 0.
type exitStatus int

// The answers of inspect.
const (
	statusDenied  exitStatus = 3
	statusUnknown exitStatus = 4 // nothing is known of the event
)

// Error returns the status as text. Nobody sees it, since it is no error of the command.
func (s exitStatus) Error() string { return "exit status " + strconv.Itoa(int(s)) }

// run is the whole program. It returns the exit status: 0 or an exitStatus, 1 for an error, or 130 for an interrupt.
func run(ctx context.Context, args []string, s streams) int {
	command, err := parse(args, s.out)
	if err == nil && command != nil {
		command.BindTo(ctx, (*context.Context)(nil))
		err = command.Run(s)
	}
	var answer exitStatus
	if err == nil || errors.As(err, &answer) {
		return int(answer)
	}
	_, _ = fmt.Fprintln(s.err, "slidegate:", strings.TrimPrefix(err.Error(), "slidegate: ")) // the library's errors begin so
	if ctx.Err() != nil {
		return 130
	}
	return 1
}

// parse reads the command line. It returns no command where all that was asked for is help.
func parse(args []string, stdout io.Writer) (*kong.Context, error) {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	switch args[0] {
	case "help":
		args = append(args[1:len(args):len(args)], "--help")
	case "version":
		args = append([]string{"--version"}, args[1:]...)
	}
	var line commandLine
	helped := false
	k, err := kong.New(&line, kong.Name("slidegate"), kong.Writers(stdout, stdout), kong.Exit(func(int) { helped = true }),
		kong.Description("Slidegate limits how often events happen.\n\nTry: slidegate replay"), kong.HelpOptions{WrapUpperBound: 100},
		kong.Vars{"version": version()})
	if err != nil {
		return nil, err
	}
	command, err := k.Parse(args)
	if helped {
		return nil, nil
	}
	if err != nil {
		return nil, plain(err, k, args)
	}
	return command, nil
}

// version returns what the program was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "slidegate, of an unknown version"
	}
	return versionOf(info)
}

// versionOf returns the version of the module or of the commit. After go run, neither is known.
func versionOf(info *debug.BuildInfo) string {
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "of an unknown commit (go build records it, go run does not)"
	}
	return "slidegate " + v + ", " + info.GoVersion
}

// plain puts what kong says into words for everybody.
func plain(err error, k *kong.Kong, args []string) error {
	text := strings.Replace(err.Error(), `, did you mean "-h"?`, "", 1) // its guess for every short flag
	if rest, ok := strings.CutPrefix(text, "unexpected argument "); ok && (rest == "" || rest[0] == ',') {
		text = `unexpected argument ""` + rest
	}
	flag, _, isSwitch := strings.Cut(text, ": bool value must be ")
	early, _, _ := strings.Cut(args[0], "=")
	switch command := owner(k, early); {
	case command != "":
		return fmt.Errorf("%s comes after the command, as in slidegate %s %s", early, command, early)
	case isSwitch:
		return fmt.Errorf("%s takes no value; leave out the = and what follows", flag)
	case strings.HasPrefix(text, "--"), strings.HasPrefix(text, "<"), strings.HasPrefix(text, "[<"), strings.HasSuffix(text, "?"): // explains itself
		return errors.New(text)
	}
	if short, ok := strings.CutPrefix(text, "unknown flag -"); ok && len(short) == 1 && single(args, short) {
		text += "; flags begin with two dashes, as in --limit"
	}
	return fmt.Errorf("%s; slidegate help%s shows what there is", text, of(k, args[0]))
}

// of is the command for the command line of its help, if it is one.
func of(k *kong.Kong, name string) string {
	if slices.ContainsFunc(k.Model.Children, func(command *kong.Node) bool { return command.Name == name }) {
		return " " + name
	}
	return ""
}

// owner is a command that has the flag, if one has.
func owner(k *kong.Kong, flag string) string {
	for _, command := range k.Model.Children {
		if slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return "--"+f.Name == flag }) {
			return command.Name
		}
	}
	return ""
}

// single reports whether there is a word of several letters, this one among them, that begins with one dash.
func single(args []string, letter string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return len(arg) > 2 && arg[0] == '-' && arg[1] != '-' && strings.Contains(arg, letter)
	})
}

// unexpected returns what kong says of an argument too many.
func unexpected(arg string) string {
	if arg == "" {
		arg = `""`
	}
	return "unexpected argument " + arg
}
