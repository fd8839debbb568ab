// Package cli parses slidegate's command line.
package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// Version is the flag that prints the version. Unlike that of kong, it fails if nothing can be
// written.
type Version bool

// BeforeReset prints the version.
func (Version) BeforeReset(app *kong.Kong, vars kong.Vars) error {
	_, err := fmt.Fprintln(app.Stdout, vars["version"])
	if err == nil {
		app.Exit(0)
	}
	return err
}

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

// unexpected begins an error about a surplus argument.
const unexpected = "unexpected argument "

// plain corrects those kong errors that mislead or print a secret.
func plain(err error) error {
	if errors.As(err, new(*fs.PathError)) { // the help or the version cannot be written
		return err
	}
	text := strings.Replace(err.Error(), `, did you mean "-h"?`, "", 1) // kong suggests this for every short flag
	if what, from, ok := strings.Cut(text, " (from envar "); ok {       // kong quotes the value, which may contain a password
		name, _, _ := strings.Cut(from, "=")
		_, what, _ = strings.Cut(what, ": ")
		return fmt.Errorf("%s: %s", name, what)
	}
	if arg, ok := strings.CutPrefix(text, unexpected); ok && (arg == "" || strings.HasPrefix(arg, ", did you mean")) {
		text = unexpected + `""` + arg // usually from an unset shell variable
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
	return plain(errors.New(unexpected + arg))
}

// These match what may be a user and a password. A password can contain anything, so that of a URL
// ends at the last @. Without an @, it stands in place of a port, and has letters.
var (
	urlLogin   = regexp.MustCompile(`(?s)://.*@`)
	plainLogin = regexp.MustCompile(`[^\s"':]*:([^\s/]|/[^/])\S*@`)
	portLogin  = regexp.MustCompile(`://[^\s"/@]*:[^\s"/@]*[A-Za-z][^\s"]*`)
)

// Redact replaces users and passwords in an error message, except in the example of a URL.
func Redact(text string) string {
	const example = "//user:password@host"
	parts := strings.Split(text, example)
	for i, part := range parts {
		part = urlLogin.ReplaceAllString(part, "://***@")
		parts[i] = portLogin.ReplaceAllString(plainLogin.ReplaceAllString(part, "***@"), "://***")
	}
	return strings.Join(parts, example)
}
