// Package cli parses slidegate's command line, and explains mistakes in plain words.
package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Parse parses args into line, a struct that describes the commands to kong. If args ask for help
// or the version, Parse prints that and returns nil.
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
		kong.Description("The tools of Slidegate, a distributed rate limiter for Redis.\n\nTry: slidegate replay"), kong.HelpOptions{Compact: true, WrapUpperBound: 100},
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

// login matches the user and password of a URL. Such a URL can occur where kong does not expect
// one.
var login = regexp.MustCompile(`://[^ ]*@`)

// version returns the version of the running program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "slidegate, unknown version"
	}
	return versionOf(info)
}

// versionOf returns the module version or, failing that, the commit. Programs started by go run
// have neither.
func versionOf(info *debug.BuildInfo) string {
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "unknown commit (go build records it, go run does not)"
	}
	return "slidegate " + v + ", " + info.GoVersion
}

// plain rewrites a kong error in plain words.
func plain(err error, k *kong.Kong, args []string) error {
	text := strings.Replace(err.Error(), `, did you mean "-h"?`, "", 1) // kong suggests this for every short flag
	if strings.HasPrefix(text, "un") {                                  // an unexpected argument or an unknown flag
		text = login.ReplaceAllString(text, "://***@")
	}
	// kong quotes the value of an environment variable, which may contain a password
	if what, from, ok := strings.Cut(text, " (from envar "); ok {
		name, _, _ := strings.Cut(from, "=")
		_, what, _ = strings.Cut(what, ": ")
		return fmt.Errorf("%s: %s", name, what)
	}
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
	case strings.HasPrefix(text, "--"), strings.HasPrefix(text, "<"), strings.HasPrefix(text, "[<"), strings.HasSuffix(text, "?"): // already clear
		return errors.New(text)
	}
	if short, ok := strings.CutPrefix(text, "unknown flag -"); ok && len(short) == 1 && single(args, short) {
		text += "; flags begin with two dashes, as in --limit"
	}
	return fmt.Errorf("%s; slidegate help%s shows what there is", text, helpArgument(k, args[0]))
}

// helpArgument returns a space and name if name is a command, or "" otherwise. The result is
// appended to "slidegate help".
func helpArgument(k *kong.Kong, name string) string {
	if slices.ContainsFunc(k.Model.Children, func(command *kong.Node) bool { return command.Name == name }) {
		return " " + name
	}
	return ""
}

// owner returns the name of a command that has the given flag, or "" if none has it.
func owner(k *kong.Kong, flag string) string {
	for _, command := range k.Model.Children {
		if slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return "--"+f.Name == flag }) {
			return command.Name
		}
	}
	return ""
}

// single reports whether any argument begins with exactly one dash, has several letters, such as
// -limit, and contains the given letter.
func single(args []string, letter string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return len(arg) > 2 && arg[0] == '-' && arg[1] != '-' && strings.Contains(arg, letter)
	})
}

// Unexpected returns kong's error message for a surplus argument.
func Unexpected(arg string) string {
	if arg == "" {
		arg = `""`
	}
	return "unexpected argument " + login.ReplaceAllString(arg, "://***@")
}
