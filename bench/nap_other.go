//go:build !linux

package main

import "time"

func sharpenNaps() {}

func nap(d time.Duration) { <-time.After(d) }
