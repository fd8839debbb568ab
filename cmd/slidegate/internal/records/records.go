// Package records parses the records that limiters store in Redis. It does not run scripts, so that
// reading many records costs the server little.
package records

import (
	"encoding/binary"
	"math"
	"time"
)

// Kind identifies a limiter's package by the last letter of the limiter's keys.
type Kind byte

// The kinds.
const (
	Window   Kind = 'w'
	AR1      Kind = 'a'
	Pace     Kind = 'r'
	Inflight Kind = 'l' // a sorted set, not a record; Read does not support it
)

// String returns the name of the package, or "" if the kind is unknown.
func (k Kind) String() string {
	return map[Kind]string{Window: "window", AR1: "ar1", Pace: "pace", Inflight: "inflight"}[k]
}

// Usage describes what counts in a window: units or, for package ar1, a level.
type Usage struct {
	Per  time.Duration
	Used float64
}

// Record represents the contents of a record at a given time.
type Record struct {
	Last   time.Time // of the last event or, for package pace, of the newest turn
	Usages []Usage   // in the order of the record; 0 if nothing counts any more
}

// Read parses a record, and computes what it counts at now. ok is false if record is not a record
// of the given kind.
func Read(kind Kind, record string, now time.Time) (r Record, ok bool) {
	b := &buffer{rest: record, foreign: !Begins(kind, record)}
	switch kind {
	case Window:
		r = b.window(now.UnixMilli())
	case AR1:
		r = b.ar1(now.UnixMicro())
	case Pace:
		r = b.pace(now.UnixMilli())
	default:
		return Record{}, false
	}
	return r, !b.foreign && b.rest == ""
}

// maxSections is the maximum number of sections in a record.
const maxSections = 31

// Begins reports whether text begins like a record of the given kind.
func Begins(kind Kind, text string) bool {
	if text == "" {
		return false
	}
	first := text[0]
	switch kind {
	case Window:
		return first > 128 && first <= 128+maxSections
	case AR1:
		return first > 160 && first <= 160+maxSections
	case Pace:
		return first == 248 || first == 249
	}
	return false
}

// buffer holds the part of a record that has not been parsed yet.
type buffer struct {
	rest    string
	foreign bool // the bytes are not a record
}

// number reads a big-endian number of up to 8 bytes.
func (b *buffer) number(width int) int64 {
	if len(b.rest) < width {
		b.foreign, b.rest = true, ""
		return 0
	}
	var eight [8]byte
	copy(eight[8-width:], b.rest)
	b.rest = b.rest[width:]
	return int64(binary.BigEndian.Uint64(eight[:]))
}

// window reads a record of package window.
func (b *buffer) window(now int64) Record {
	sections, t := b.number(1)-128, b.number(6)
	r := Record{Last: time.UnixMilli(t).UTC()}
	for range max(0, sections) {
		r.add(b.section(t, func(last int64) int64 { return max(now, last) }), b)
	}
	return r
}

// pace reads a record of package pace. The next turn cannot come before the floor, so turns that
// will be forgotten by then do not count.
func (b *buffer) pace(now int64) Record {
	format, sections, floor := b.number(1), b.number(1), b.number(6)
	b.number(6) // the clock
	if format == 249 {
		b.number(6) // the end of the pause
		b.number(6) // the shift
	}
	r := Record{Last: time.UnixMilli(floor).UTC()}
	for range max(0, sections) {
		if u := b.section(floor, func(int64) int64 { return max(now, floor) }); u.Per != steppedPer {
			r.add(u, b)
		}
	}
	b.foreign = b.foreign || len(r.Usages) > maxSections
	return r
}

// steppedPer marks the section that holds a time, not a limit: see lua/pace.lua.
const steppedPer = (1<<32 - 1) * time.Millisecond

// add adds a usage, unless the buffer turned out not to be a record.
func (r *Record) add(u Usage, b *buffer) {
	if b.foreign {
		b.rest = ""
		return
	}
	r.Usages = append(r.Usages, u)
}

// section reads a section of package window or pace. It counts the units that are not forgotten at
// the time that date returns. That time can depend on the last event.
func (b *buffer) section(t int64, date func(last int64) int64) Usage {
	flags, closed, per := b.head()
	last := t
	if flags&16 != 0 {
		last = b.number(6)
	}
	if flags>>2&3 == 2 {
		b.number(6) // the Resolution
	}
	width := []int{0, 1, 3, 7}[flags&3]
	total := closed + 1
	if width > 0 {
		total = b.number(width)
		b.number(width) // the units of the last bucket
	}
	forgotten := b.forgotten(closed, per, last, date(last), width)
	if last+per <= date(last) {
		forgotten = total
	}
	b.foreign = b.foreign || forgotten > total
	return Usage{time.Duration(per) * time.Millisecond, float64(total - forgotten)}
}

// head reads the head of a section.
func (b *buffer) head() (flags, closed, per int64) {
	flags = b.number(1)
	if flags&32 == 0 {
		closed, per = b.number(1), b.number(4)
	} else {
		closed, per = b.number(2), b.number(6)
	}
	if flags > 63 || flags>>2&3 == 3 || per < 1 || per > maxPer {
		b.foreign = true
	}
	return flags, closed, per
}

// maxPer is the longest Per, in ms, that fits into a time.Duration. No limiter has a longer one.
const maxPer = math.MaxInt64 / int64(time.Millisecond)

// forgotten reads the closed buckets, and returns how many of their units are forgotten at date. If
// width is 0, each bucket holds a single unit.
func (b *buffer) forgotten(closed, per, last, date int64, width int) (units int64) {
	timeWidth := widthOf(per)
	wrap := int64(1) << (8 * timeWidth)
	for i := int64(0); i < closed && !b.foreign; i++ {
		at, n := b.number(timeWidth), int64(1)
		if width > 0 {
			n = b.number(width)
		}
		age := (last - at) % wrap
		if age < 0 {
			age += wrap
		}
		if last-age+per <= date {
			units += n
		}
	}
	return units
}

// widthOf returns the number of bytes that hold the time of a closed bucket.
func widthOf(per int64) int {
	for _, width := range []int{2, 3, 4} {
		if per < 1<<(8*width) {
			return width
		}
	}
	return 6
}

// ar1 reads a record of package ar1. A level below rest counts as 0.
func (b *buffer) ar1(now int64) Record {
	sections, written := b.number(1)-160, b.number(7)
	r := Record{Last: time.UnixMicro(written).UTC()}
	for range max(0, sections) {
		per := b.number(4)
		if per == 0 {
			per = b.number(6)
		}
		level := math.Float64frombits(uint64(b.number(8)))
		if per < 1 || per > maxPer || !(level >= 0) || math.IsInf(level, 1) {
			b.foreign = true
		}
		level *= math.Exp(-float64(max(0, now-written)) / (1000 * float64(per)))
		if level < rest {
			level = 0
		}
		r.add(Usage{time.Duration(per) * time.Millisecond, math.Round(level*1e8) / 1e8}, b) // the precision with which inspect shows a level
	}
	return r
}

// rest is the threshold below which a level of package ar1 counts as 0.
const rest = 0.25
