package main

import (
	"syscall"
	"time"
)

// minTimerSlack makes sleeps of the current thread precise. By default, Linux may add 50 µs to
// each.
func minTimerSlack() {
	const setTimerSlack = 29
	_, _, _ = syscall.Syscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0) // nanoseconds
}

// preciseSleep blocks the current thread for d. On some Linux machines, time.Sleep rounds up to 1
// ms.
func preciseSleep(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil)
}
