//go:build unix

package output

import (
	"os"
	"os/signal"
	"syscall"
)

// notify asks for the signals that a Live obeys: a new size, and the stop by control-Z.
func notify(signals chan os.Signal) { signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP) }

func suspends(s os.Signal) bool { return s == syscall.SIGTSTP }

// suspend stops the program until somebody continues it.
func suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-continued // or the call could return before the stop
}
