// Package cli reads the command line of slidegate, and puts what is wrong with it into words for
// everybody.
package cli

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Parse reads arguments into line, a struct of commands for kong. It returns no command if the
// arguments ask for help or for the version, which it prints.
func Parse(line any, args []string, stdout io.Writer) (*kong.Context, error) {
	if len(args) == 0 {
		args = []string{"--help"}
	}
	switch args[0] {
	case "help":
		args = append(args[1:len(args):len(args)], "--help")
	case "version":
		args = append([]string{"--version"}, args[1:]...)
	}
	helped := false
	k, err := kong.New(line, kong.Name("slidegate"), kong.Writers(stdout, stdout), kong.Exit(func(int) { helped = true }),
		kong.Description("Slidegate limits how often events happen.\n\nTry: slidegate replay"), kong.HelpOptions{Compact: true, WrapUpperBound: 100},
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

// of returns the command for the command line of its help, if it is one.
func of(k *kong.Kong, name string) string {
	if slices.ContainsFunc(k.Model.Children, func(command *kong.Node) bool { return command.Name == name }) {
		return " " + name
	}
	return ""
}

// owner returns a command that has the flag, if one has.
func owner(k *kong.Kong, flag string) string {
	for _, command := range k.Model.Children {
		if slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return "--"+f.Name == flag }) {
			return command.Name
		}
	}
	return ""
}

// single reports whether there is a word of several letters, this one among them, that begins with
// one dash.
func single(args []string, letter string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return len(arg) > 2 && arg[0] == '-' && arg[1] != '-' && strings.Contains(arg, letter)
	})
}

// Unexpected returns what kong says of an argument too many.
func Unexpected(arg string) string {
	if arg == "" {
		arg = `""`
	}
	return "unexpected argument " + arg
}
