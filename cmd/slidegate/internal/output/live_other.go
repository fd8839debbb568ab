//go:build !unix

package output

import "os"

// notify does nothing, because no signal announces a new terminal size here. The next Draw reads
// the size.
func notify(chan os.Signal) {}

func suspends(os.Signal) bool { return false }

func suspend() {}
