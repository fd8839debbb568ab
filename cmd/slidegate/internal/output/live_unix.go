//go:build unix

package output

import (
	"os"
	"os/signal"
	"syscall"
)

// notify subscribes to the signals that Live.Obey handles: a change of size, and suspension with
// Ctrl-Z.
func notify(signals chan os.Signal) { signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP) }

func suspends(s os.Signal) bool { return s == syscall.SIGTSTP }

// suspend stops the program until it is continued, for example by fg.
func suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-continued // otherwise suspend could return before the program stops
}
