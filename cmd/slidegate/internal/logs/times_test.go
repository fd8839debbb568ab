package logs

import (
	"testing"
	"time"
)

// TestYears checks logs line by line. Each row contains a line's date and the time that the line
// must get.
func TestYears(t *testing.T) {
	type step struct{ stamp, want string }
	for name, steps := range map[string][]step{
		"forward": {
			{"Dec 30 23:00:00", "2001-12-30T23:00:00Z"},
			{"Jan  1 00:00:01", "2002-01-01T00:00:01Z"},
			{"Dec 31 23:59:59", "2001-12-31T23:59:59Z"}, // a step back across New Year
			{"Jan  1 00:00:02", "2002-01-01T00:00:02Z"},
			{"Oct  5 00:00:00", "2002-10-05T00:00:00Z"}, // nine months without attempts
			{"Mar  1 00:00:00", "2003-03-01T00:00:00Z"},
		},
		"small steps back": {
			{"Mar 31 03:00:00", "2001-03-31T03:00:00Z"},
			{"Mar 31 02:00:00", "2001-03-31T02:00:00Z"}, // summer time ends
			{"Mar 10 00:00:00", "2001-03-10T00:00:00Z"},
			{"Mar  1 04:00:00", "2001-03-01T04:00:00Z"}, // just within 30 days
			{"Mar  1 02:00:00", "2002-03-01T02:00:00Z"},
		},
		"begins with a leap day": {
			{"Feb 29 12:00:00", "2004-02-29T12:00:00Z"},
			{"Mar  1 12:00:00", "2004-03-01T12:00:00Z"},
		},
		"reaches a leap day": {
			{"Feb 28 23:59:58", "2001-02-28T23:59:58Z"},
			{"Feb 29 00:00:01", "2001-03-01T00:00:01Z"},
			{"Feb 28 23:59:59", "2001-02-28T23:59:59Z"},
			{"Feb 29 23:59:59", "2001-03-01T23:59:59Z"},
			{"Mar  1 00:00:00", "2001-03-02T00:00:00Z"},
			{"Dec 31 23:59:59", "2002-01-01T23:59:59Z"},
			{"Jan  1 00:00:00", "2002-01-02T00:00:00Z"},
		},
		"reaches a leap day that has a year": {
			{"2024-02-28T23:59:58Z", "2024-02-28T23:59:58Z"},
			{"Feb 29 00:00:01", "2024-02-29T00:00:01Z"},
			{"Mar  1 00:00:00", "2024-03-01T00:00:00Z"},
		},
		"years come and go": {
			{"2024-12-31T23:30:00-01:00", "2025-01-01T00:30:00Z"},
			{"Jan  1 01:00:00", "2025-01-01T01:00:00Z"},
			{"Dec 31 23:00:00", "2024-12-31T23:00:00Z"},
			{"2026-06-01T00:00:00Z", "2026-06-01T00:00:00Z"},
			{"Jun  1 00:00:01", "2026-06-01T00:00:01Z"},
		},
		"odd forms": {
			{"Mar 4 05:06:07", "2001-03-04T05:06:07Z"},
			{"Mar  4 05:06:07.25", "2001-03-04T05:06:07.25Z"},
		},
	} {
		var c calendar
		for _, s := range steps {
			at, rest, ok := c.cut(s.stamp + " bastion CRON[1]: hello")
			if got := at.UTC().Format(time.RFC3339Nano); !ok || got != s.want || rest != "bastion CRON[1]: hello" {
				t.Errorf("%s: %s is %s, %q, %v; want %s", name, s.stamp, got, rest, ok, s.want)
			}
		}
	}
}
