//go:build !unix

package output

import "os"

// notify asks for nothing: there is no signal of a new size, which the next Draw sees.
func notify(chan os.Signal) {}

func suspends(os.Signal) bool { return false }

func suspend() {}
