package clock

import (
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Format formats a duration as limits are written, with days and without trailing zeros: 1m30s or
// 1d12h.
func Format(d time.Duration) string {
	days := ""
	if n := d / day; n > 0 {
		days, d = strconv.FormatInt(int64(n), 10)+"d", d%day
		if d == 0 {
			return days
		}
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return days + s
}

// Rounded returns d for use in an error text: in whole milliseconds, unless it is less than a
// millisecond.
func Rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d
	}
	return d.Round(time.Millisecond)
}
