package lua_test

import (
	"math"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/slidegate/slidegate/lua"
)

// script is what the tests need to know about one of the scripts.
type script struct {
	name    string // of its file, and of the folder of its histories
	source  string
	unit    time.Duration                              // of an instant, which is a number of these since 1970
	never   int64                                      // the first instant that is too late for it
	most    int64                                      // units, and a Max, at most
	limited int                                        // arguments of a limit: Per, Max and, if 3, Resolution
	format  byte                                       // the first byte of a record, less the number of its sections
	least   int                                        // bytes of the shortest record
	layout  func(record string) string                 // a record as a person reads it
	details func(s script, rest []int64) (string, int) // what inspect replies of a limit besides, and in how many numbers
	other   func(s script, rest []int64) (string, int) // what inspect replies of a section of no limit, after its Per
	foreign func(record string) map[string]string      // values made of a record that are none
	life    func(per int64, level float64) int64       // for how many ms a limit remembers, whose level is that many units
}

// The scripts pass the same tests.
var (
	window = script{
		name: "window", source: lua.Window, unit: time.Millisecond, never: 1 << 47, most: 1 << 53,
		limited: 3, format: 128, least: 13, layout: windowLayout, details: buckets, other: otherBuckets, foreign: noWindow,
		life: func(per int64, _ float64) int64 { return per },
	}
	ar1 = script{
		name: "ar1", source: lua.AR1, unit: time.Microsecond, never: 1 << 53, most: 1e7,
		limited: 2, format: 160, least: 20, layout: ar1Layout, details: ofLevel, other: otherLevel, foreign: noAR1,
		life: func(per int64, level float64) int64 { return int64(math.Ceil(float64(per) * math.Log(4*level))) },
	}
	scripts = []script{window, ar1}
)

// each runs a test for each script.
func each(t *testing.T, test func(t *testing.T, s script)) {
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) { test(t, s) })
	}
}

// histories returns the files with the histories of the script.
func (s script) histories() []string { return must(filepath.Glob("testdata/" + s.name + "/*.txt")) }

// limit returns Max/Per@Resolution as the script takes it. A script without a Resolution leaves it
// out.
func (s script) limit(text string) []string { return must(s.parseLimit(text)) }

// midnight is the instant that the instants of the tests count from: 2023-11-15 00:00 UTC, in ms.
const midnight = 1_700_006_400_000

// midnight returns that instant as the script counts.
func (s script) midnight() int64 { return midnight * int64(time.Millisecond/s.unit) }

// instant returns a time after midnight, such as 1h30m or -5s, as the script counts.
func (s script) instant(text string) int64 { return must(s.parseInstant(text)) }

// digits returns a number as a script takes it.
func digits(n int64) string { return strconv.FormatInt(n, 10) }

// at returns an instant as the script takes it. An empty one is the time of the server.
func (s script) at(text string) string {
	if text == "" {
		return ""
	}
	return digits(s.instant(text))
}

// shown returns an instant as a person reads it.
func (s script) shown(instant int64) string {
	return (time.Duration(instant-s.midnight()) * s.unit).String()
}

// span returns a time in ms as a person reads it.
func span(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
