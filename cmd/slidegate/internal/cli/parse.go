// Package cli parses slidegate's command line.
package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
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
		return nil, plain(err)
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

// plain corrects those kong errors that mislead or print a secret.
func plain(err error) error {
	text := strings.Replace(err.Error(), `, did you mean "-h"?`, "", 1) // kong suggests this for every short flag
	if what, from, ok := strings.Cut(text, " (from envar "); ok {       // kong quotes the value, which may contain a password
		name, _, _ := strings.Cut(from, "=")
		_, what, _ = strings.Cut(what, ": ")
		return fmt.Errorf("%s: %s", name, what)
	}
	if strings.HasPrefix(text, "un") { // an unexpected argument or an unknown flag
		text = login.ReplaceAllString(text, "://***@")
	}
	for _, begin := range []string{"--", "<", "[<"} { // a flag or an argument that has a wrong value
		if strings.HasPrefix(text, begin) {
			return errors.New(text)
		}
	}
	return errors.New(text + More)
}

// More ends an error about a command line that does not fit a command.
const More = "; --help shows what there is"

// Unexpected returns an error about a surplus argument.
func Unexpected(arg string) error {
	return errors.New("unexpected argument " + login.ReplaceAllString(arg, "://***@") + More)
}
