package lua_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
)

// windowLayout formats a record in hex: its format and T, then a line for each section, with its
// fields as named in the header of window.lua: flags, closed, Per | own last time | Resolution |
// units | buckets. It implements the format independently, and panics if the record does not fit.
func windowLayout(record string) string {
	if record == "" {
		return "  none\n"
	}
	b := []byte(record)
	lines := []string{fmt.Sprintf("  %x %x", b[:1], b[1:7])}
	sections := int(b[0]) - 128
	for b = b[7:]; len(b) > 0; sections-- {
		section, n := take(b, widths(b))
		if len(section) > 120 {
			section = fmt.Sprintf("%s ... %d bytes in all", section[:120], n)
		}
		lines, b = append(lines, "  "+section), b[n:]
	}
	if sections != 0 {
		panic(fmt.Sprintf("wrong number of sections: %x", record))
	}
	return strings.Join(lines, "\n") + "\n"
}

// widths returns how many bytes each field of the first section takes. A 0 stands for a bar between
// them.
func widths(b []byte) []int {
	flags, closed, per := b[0], uint64(b[1]), uint64(binary.BigEndian.Uint32(b[2:]))
	fields := []int{1, 1, 4, 0}
	if flags&32 != 0 {
		closed, per = uint64(binary.BigEndian.Uint16(b[1:])), binary.BigEndian.Uint64(b[1:])&(1<<48-1)
		fields = []int{1, 2, 6, 0}
	}
	if flags&16 != 0 {
		fields = append(fields, 6, 0)
	}
	if flags>>2&3 == 2 {
		fields = append(fields, 6, 0)
	}
	bucket := []int{timeWidth(per)}
	if unit := []int{0, 1, 3, 7}[flags&3]; unit > 0 {
		fields, bucket = append(fields, unit, unit, 0), []int{timeWidth(per), unit, 0}
	}
	for range closed {
		fields = append(fields, bucket...)
	}
	return fields
}

// timeWidth returns how many bytes the time of a closed bucket takes.
func timeWidth(per uint64) int {
	for _, w := range []int{2, 3, 4} {
		if per < 1<<(8*w) {
			return w
		}
	}
	return 6
}

// take formats fields of the given widths, and returns how many bytes they take.
func take(b []byte, widths []int) (shown string, n int) {
	var fields []string
	for _, w := range widths {
		if w == 0 {
			fields = append(fields, "|")
			continue
		}
		fields, n = append(fields, hex.EncodeToString(b[n:n+w])), n+w
	}
	return strings.TrimRight(strings.Join(fields, " "), " |"), n
}

// ar1Layout formats a record in hex: its format and time, then a line for each section, as in the
// header of ar1.lua: Per | level, which is also shown as a number.
func ar1Layout(record string) string {
	if record == "" {
		return "  none\n"
	}
	b := []byte(record)
	lines, sections := []string{fmt.Sprintf("  %x %x", b[:1], b[1:8])}, int(b[0])-160
	for b = b[8:]; len(b) > 0; sections-- {
		fields := []int{4, 0, 8}
		if binary.BigEndian.Uint32(b) == 0 {
			fields = []int{4, 6, 0, 8}
		}
		section, n := take(b, fields)
		level := math.Float64frombits(binary.BigEndian.Uint64(b[n-8:]))
		lines, b = append(lines, fmt.Sprintf("  %s = %v", section, level)), b[n:]
	}
	if sections != 0 {
		panic(fmt.Sprintf("wrong number of sections: %x", record))
	}
	return strings.Join(lines, "\n") + "\n"
}
