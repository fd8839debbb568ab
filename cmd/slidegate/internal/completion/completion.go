// Package completion prints shell scripts that complete slidegate's command line.
package completion

import (
	"embed"
	"strings"
	"text/template"

	"github.com/alecthomas/kong"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/cli"
)

// Command represents "slidegate completion". Run prints the script for the given shell.
type Command struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

//go:embed help.txt
var help string

// Help returns the text of slidegate completion --help.
func (Command) Help() string { return help }

//go:embed *.tmpl
var files embed.FS

// scripts holds the script templates, such as bash.tmpl.
var scripts = template.Must(template.New("").Funcs(template.FuncMap{
	"zsh":  strings.NewReplacer(`'`, `'\''`, `[`, `\[`, `]`, `\]`, `:`, `\:`).Replace,
	"fish": strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace,
}).ParseFS(files, "*.tmpl"))

// Run prints the script. The script contains the names of all commands and flags, so it does not
// call slidegate.
func (c *Command) Run(k *kong.Kong, s cli.Streams) error {
	var all []command
	var names []string
	for _, node := range k.Model.Children {
		all = append(all, commandOf(node))
		names = append(names, node.Name)
	}
	all = append(all, command{Name: "help", Brief: "Show the help of a command", Words: names})
	return scripts.ExecuteTemplate(s.Out, c.Shell+".tmpl", all)
}

// A command is what a script needs to know about a slidegate command.
type command struct {
	Name, Brief string
	Flags       []flag
	Words       []string // what its first argument can be; nil means anything
	Files       bool     // whether its arguments are files
}

// A flag is what a script needs to know about a flag.
type flag struct {
	Name, Brief string
	Value, File bool // whether it takes a value, and whether that value is a file name
}

// commandOf returns what a script needs to know about a command. It takes an argument or a value
// for a file if the help text calls it one.
func commandOf(node *kong.Node) command {
	c := command{Name: node.Name, Brief: brief(node.Help)}
	for _, f := range append(node.Flags, node.Parent.Flags...) {
		c.Flags = append(c.Flags, flag{f.Name, brief(f.Help), !f.IsBool(), f.PlaceHolder == "FILE"})
	}
	for _, argument := range node.Positional {
		c.Files = c.Files || argument.Name == "file"
		if argument.Enum != "" {
			c.Words = argument.EnumSlice()
		}
	}
	return c
}

// brief returns the first sentence of help.
func brief(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	return strings.TrimSuffix(first, ".")
}
