// Package cli parses the command line of slidegate, and explains mistakes in it in plain words.
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

// Parse parses arguments into line, a struct of commands for kong. If the arguments request help or
// the version, it prints that and returns no command.
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

// login matches a user and a password in a URL, which can occur where kong expects no URL.
var login = regexp.MustCompile(`://[^ ]*@`)

// version returns the version from which the program was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "slidegate, unknown version"
	}
	return versionOf(info)
}

// versionOf returns the version of the module or of the commit. After go run, neither is known.
func versionOf(info *debug.BuildInfo) string {
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "unknown commit (go build records it, go run does not)"
	}
	return "slidegate " + v + ", " + info.GoVersion
}

// plain rewrites a kong error in plain words.
func plain(err error, k *kong.Kong, args []string) error {
	text := strings.Replace(err.Error(), `, did you mean "-h"?`, "", 1) // kong guesses this for every short flag
	if strings.HasPrefix(text, "un") {                                  // an unexpected argument, or an unknown flag
		text = login.ReplaceAllString(text, "://***@")
	}
	// kong quotes the value of a variable, which may hold a password
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

// helpArgument returns " " and the name if it is a command, to append to slidegate help, or an
// empty string.
func helpArgument(k *kong.Kong, name string) string {
	if slices.ContainsFunc(k.Model.Children, func(command *kong.Node) bool { return command.Name == name }) {
		return " " + name
	}
	return ""
}

// owner returns the name of a command that has the flag, or an empty string.
func owner(k *kong.Kong, flag string) string {
	for _, command := range k.Model.Children {
		if slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return "--"+f.Name == flag }) {
			return command.Name
		}
	}
	return ""
}

// single reports whether an argument, such as -limit, begins with exactly one dash, has several
// letters, and contains the given letter.
func single(args []string, letter string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return len(arg) > 2 && arg[0] == '-' && arg[1] != '-' && strings.Contains(arg, letter)
	})
}

// Unexpected returns the error text of kong for a surplus argument.
func Unexpected(arg string) string {
	if arg == "" {
		arg = `""`
	}
	return "unexpected argument " + login.ReplaceAllString(arg, "://***@")
}
