package picture

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A mark is a named place on an axis.
type mark struct {
	at   float64
	name string
	note string // below the name, where it differs from the note of the mark before
}

// A rhythm is a choice of round instants: every so many seconds, or every so many months.
type rhythm struct {
	seconds, months int64
	name, note      string // layouts
}

// rhythms are those to choose from, the fastest first. The slowest does for 20,000 years; no log goes on for so long.
var rhythms = func() (all []rhythm) {
	for _, s := range []int64{1, 2, 5, 10, 15, 30} {
		all = append(all, rhythm{s, 0, time.TimeOnly, "Jan 2, 2006"})
	}
	for _, m := range []int64{1, 2, 5, 10, 15, 30, 60, 2 * 60, 3 * 60, 6 * 60, 12 * 60} {
		all = append(all, rhythm{m * minute, 0, "15:04", "Jan 2, 2006"})
	}
	for _, d := range []int64{1, 2, 7, 14} {
		all = append(all, rhythm{d * day, 0, "Jan 2", "2006"})
	}
	for _, m := range []int64{1, 3, 6} {
		all = append(all, rhythm{0, m, "Jan", "2006"})
	}
	for _, y := range []int64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000} {
		all = append(all, rhythm{0, 12 * y, "2006", ""})
	}
	return all
}()

// timeMarks are about five to ten round instants between two seconds since 1970, which are their places.
func timeMarks(from, to float64, yearless bool) (marks []mark) {
	i := slices.IndexFunc(rhythms, func(r rhythm) bool { return (to-from)/r.length() <= 10 })
	r := rhythms[i]
	if yearless {
		r.name, r.note = cmp.Or(withoutYear(r.name), "Jan"), withoutYear(r.note)
	}
	for n := r.before(int64(from)); ; n++ {
		at := r.instant(n)
		if float64(at.Unix()) > to {
			return marks
		}
		if float64(at.Unix()) >= from {
			marks = append(marks, mark{float64(at.Unix()), at.Format(r.name), at.Format(r.note)})
		}
	}
}

func withoutYear(layout string) string {
	return strings.TrimSuffix(strings.TrimSuffix(layout, "2006"), ", ")
}

// length is about how many seconds lie between two instants.
func (r rhythm) length() float64 { return float64(r.seconds + r.months*365*day/12) }

// instant is the nth one. Those of seconds begin on a Monday, as weeks do; those of months in the year 0, as centuries do.
func (r rhythm) instant(n int64) time.Time {
	if r.months > 0 {
		return time.Date(0, time.Month(1+n*r.months), 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Unix(4*day+n*r.seconds, 0).UTC()
}

// before is the number of the last instant that is not after a second since 1970.
func (r rhythm) before(second int64) int64 {
	if r.months > 0 {
		year, month, _ := time.Unix(second, 0).UTC().Date()
		return floorDiv(int64(year)*12+int64(month)-1, r.months)
	}
	return floorDiv(second-4*day, r.seconds)
}

// waitNames are the waits that an axis can name; the round ones do for a wide one.
var waitNames = []struct {
	wait  time.Duration
	name  string
	round bool
}{
	{time.Millisecond, "1 ms", true},
	{2 * time.Millisecond, "2 ms", false},
	{5 * time.Millisecond, "5 ms", false},
	{10 * time.Millisecond, "10 ms", true},
	{20 * time.Millisecond, "20 ms", false},
	{50 * time.Millisecond, "50 ms", false},
	{100 * time.Millisecond, "100 ms", true},
	{200 * time.Millisecond, "200 ms", false},
	{500 * time.Millisecond, "500 ms", false},
	{time.Second, "1 s", true},
	{2 * time.Second, "2 s", false},
	{5 * time.Second, "5 s", false},
	{10 * time.Second, "10 s", true},
	{30 * time.Second, "30 s", false},
	{time.Minute, "1 min", true},
	{2 * time.Minute, "2 min", false},
	{5 * time.Minute, "5 min", false},
	{10 * time.Minute, "10 min", true},
	{30 * time.Minute, "30 min", false},
	{time.Hour, "1 h", true},
	{2 * time.Hour, "2 h", false},
	{6 * time.Hour, "6 h", true},
	{12 * time.Hour, "12 h", false},
	{24 * time.Hour, "1 d", true},
	{2 * 24 * time.Hour, "2 d", false},
	{7 * 24 * time.Hour, "1 week", true},
	{14 * 24 * time.Hour, "2 weeks", false},
	{30 * 24 * time.Hour, "30 d", true},
	{90 * 24 * time.Hour, "90 d", false},
	{365 * 24 * time.Hour, "1 year", true},
	{2 * 365 * 24 * time.Hour, "2 years", false},
	{5 * 365 * 24 * time.Hour, "5 years", false},
	{10 * 365 * 24 * time.Hour, "10 years", true},
	{20 * 365 * 24 * time.Hour, "20 years", false},
	{50 * 365 * 24 * time.Hour, "50 years", false},
	{100 * 365 * 24 * time.Hour, "100 years", true},
	{200 * 365 * 24 * time.Hour, "200 years", false},
}

// waitMarks are the waits to name between two places on an axis on which the bins of Waits are equally wide.
func waitMarks(from, to float64) []mark {
	var all, round []mark
	for _, n := range waitNames {
		at := perOctave * math.Log2(float64(n.wait)/float64(shortest))
		if at < from || at > to {
			continue
		}
		all = append(all, mark{at: at, name: n.name})
		if n.round {
			round = append(round, all[len(all)-1])
		}
	}
	if len(round) < 5 {
		return all
	}
	return round
}

// A scale is an axis of numbers from 0.
type scale struct {
	top  float64
	root bool // heights go by the square root
}

// newScale makes room for the highest of some counts. If that one would leave half of those that are not 0 no more than a
// twentieth of the height, it takes the square root.
func newScale(counts []int) scale {
	counts = slices.DeleteFunc(slices.Clone(counts), func(n int) bool { return n == 0 })
	slices.Sort(counts)
	highest := float64(counts[len(counts)-1])
	return scale{highest, highest > 20*float64(counts[len(counts)/2])}
}

// String says what is not usual about the scale.
func (s scale) String() string {
	if s.root {
		return "square-root scale"
	}
	return ""
}

// height is a part of the axis: 0 is its foot, 1 the place of its top.
func (s scale) height(n float64) float64 {
	if s.root {
		return math.Sqrt(n / s.top)
	}
	return n / s.top
}

// marks are 0 and round numbers above it: all multiples of one, or on a scale of roots some that are far enough apart.
func (s scale) marks() []mark {
	marks := []mark{{at: 0, name: "0"}}
	add := func(n float64) { marks = append(marks, mark{at: n, name: thousands(int(n))}) }
	round := roundNumbers(s.top)
	if s.root {
		for _, n := range round {
			if s.height(n)-s.height(marks[len(marks)-1].at) > 0.12 {
				add(n)
			}
		}
		return marks
	}
	i := slices.IndexFunc(round, func(n float64) bool { return n >= s.top/5 })
	for n := round[i]; n <= s.top; n += round[i] {
		add(n)
	}
	return marks
}

// roundNumbers are 1, 2, 5, 10, 20, 50 and so on.
func roundNumbers(most float64) (all []float64) {
	for ten := 1.0; ten <= most; ten *= 10 {
		for _, n := range []float64{ten, 2 * ten, 5 * ten} {
			if n <= most {
				all = append(all, n)
			}
		}
	}
	return all
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
