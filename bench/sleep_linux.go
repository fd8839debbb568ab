package main

import (
	"syscall"
	"time"
)

// minTimerSlack makes the sleeps of this thread precise. By default, Linux may add 50 µs to each.
func minTimerSlack() {
	const setTimerSlack = 29
	_, _, _ = syscall.Syscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0) // nanoseconds
}

// preciseSleep blocks its thread for d. time.Sleep rounds up to 1 ms on some Linux machines.
func preciseSleep(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil)
}
