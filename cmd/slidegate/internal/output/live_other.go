//go:build !unix

package output

import "os"

// notify does nothing: there is no signal for a new size, which the next Draw reads.
func notify(chan os.Signal) {}

func suspends(os.Signal) bool { return false }

func suspend() {}
