//go:build !linux

package main

import "time"

func minTimerSlack() {}

func preciseSleep(d time.Duration) { <-time.After(d) }
