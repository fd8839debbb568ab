//go:build !unix

package output

import "os"

// notify does nothing: there is no signal for a new size, but the next Draw reads it.
func notify(chan os.Signal) {}

func suspends(os.Signal) bool { return false }

func suspend() {}
