package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// drawing is what the tests read in an SVG.
type drawing struct {
	size  int
	texts []text
}

// A text begins at its x.
type text struct {
	X     float64 `xml:"x,attr"`
	Y     float64 `xml:"y,attr"`
	Style string  `xml:"style,attr"`
	Text  string  `xml:",chardata"`
}

// end is the x at which a text ends.
func (t text) end() float64 {
	for _, st := range []style{title, heading, label} {
		if strings.Contains(t.Style, fmt.Sprintf("font-size:%vpx", st.size)) {
			return t.X + st.width(t.Text)
		}
	}
	return math.NaN()
}

// drawn draws a picture twice. It must be the same, and well-formed, and no text may lie on another or in the margin.
func drawn(tb testing.TB, p Picture) drawing {
	tb.Helper()
	var b, again bytes.Buffer
	if err := Draw(&b, p); err != nil {
		tb.Fatal(err)
	}
	if err := Draw(&again, p); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		tb.Errorf("drawn again it differs: %v", err)
	}
	var svg struct {
		Texts []text `xml:"g>text"`
	}
	if err := xml.Unmarshal(b.Bytes(), &svg); err != nil {
		tb.Fatalf("%v in\n%s", err, b.Bytes())
	}
	for i, t := range svg.Texts {
		if !(t.X >= margin-0.1 && t.end() <= pageWidth-margin+0.1) {
			tb.Errorf("%q goes from %v to %v", t.Text, t.X, t.end())
		}
		for _, other := range svg.Texts[:i] {
			if math.Abs(t.Y-other.Y) < 8 && t.X < other.end()+1 && other.X < t.end()+1 {
				tb.Errorf("%q lies on %q", t.Text, other.Text)
			}
		}
	}
	return drawing{b.Len(), svg.Texts}
}

// said are the texts of a drawing.
func (d drawing) said() (all []string) {
	for _, t := range d.texts {
		all = append(all, t.Text)
	}
	return all
}

// pictureOf is that of a history whose attempts wait for these times in turn, where a set denies them.
func pictureOf(history []attempt, waits ...time.Duration) Picture {
	p := Picture{
		Title: "auth.log", Zone: "UTC", Timeline: timelineOf(history),
		Sets: []Set{{Name: "1/5s, 5/1h, 20/1d", Waits: &Waits{}}, {Name: "20/1d", Waits: &Waits{}}},
	}
	for i, a := range history {
		for j, s := range p.Sets {
			if !a.admitted[j] {
				s.Waits.Add(waits[i%len(waits)])
				p.Sets[j].Denied++
			}
		}
	}
	return p
}

// every is a history that denies each second attempt in the first set, and all in the other.
func every(from time.Time, step time.Duration, times int) (history []attempt) {
	for i := range times {
		history = append(history, attempt{from.Add(time.Duration(i) * step).Unix(), []bool{i%2 == 0, false}})
	}
	return history
}

var noon = time.Date(2025, time.March, 4, 12, 0, 0, 0, time.UTC)

// TestWords: all words of a picture, from the title down.
func TestWords(t *testing.T) {
	p := pictureOf(every(noon, time.Minute, 1500), time.Second, time.Hour)
	want := []string{
		"auth.log", "attempts (1,500)", "1/5s, 5/1h, 20/1d (750 denied)", "20/1d (1,500 denied)",
		"Attempts and admissions per 5 min", "UTC", "0", "1", "2", "3", "4", "5",
		"12:00", "Mar 4, 2025", "15:00", "18:00", "21:00", "00:00", "Mar 5, 2025", "03:00", "06:00", "09:00", "12:00",
		"Denied attempts by the time they have to wait", "in steps of 19 %", "0", "200", "400", "600",
		"1 s", "10 s", "1 min", "10 min", "1 h",
	}
	if diff := cmp.Diff(want, drawn(t, p).said()); diff != "" {
		t.Errorf("(-want +drawn):\n%s", diff)
	}
	p.Sets, p.Zone, p.Yearless = p.Sets[:1], "", true
	said := drawn(t, p).said()
	if !slices.Contains(said, "admitted under 1/5s, 5/1h, 20/1d (750 denied)") || !slices.Contains(said, "Mar 4") || strings.Contains(fmt.Sprint(said), "2025") {
		t.Errorf("%q", said)
	}
}

// TestTimesAreNamed at every length of a log, beginning at odd times.
func TestTimesAreNamed(t *testing.T) {
	for n := range 200 {
		from := time.Unix(1_000_000_007*int64(n)%3_000_000_000, 0)
		span := time.Duration(math.Exp2(float64(n)/200*33) * float64(time.Second)) // up to 270 years
		p := pictureOf(every(from, span, 2), time.Second)
		for _, p.Yearless = range []bool{false, true} {
			drawn(t, p)
			if marks := p.times().marks; len(marks) < 3 || len(marks) > 11 {
				t.Errorf("%v from %v: %d marks", span, from, len(marks))
			}
		}
	}
}

// TestWaitsAreNamed at every length of a range of waits, and wherever it begins.
func TestWaitsAreNamed(t *testing.T) {
	for n := range 60 * 60 / 7 {
		least := time.Duration(math.Exp2(float64(7*n%60)) * 1.1)
		p := pictureOf(every(noon, time.Minute, 2), least, max(least, time.Duration(math.Exp2(float64(7*n/60)))))
		if drawn(t, p); len(p.waits().marks) < 2 {
			t.Errorf("%v to %v: %d marks", least, p.Sets[1].Waits.Longest(), len(p.waits().marks))
		}
	}
}

// TestScale: a scale has a few round numbers, one of them above the middle. It takes the square root for the sake of the
// counts of which there are most.
func TestScale(t *testing.T) {
	for highest := 1; highest < 1e9; highest += 1 + highest/7 {
		for _, usual := range []int{1, highest} {
			s := newScale([]int{0, usual, usual, 0, 0, highest, 0, 0})
			marks := s.marks()
			if last := s.height(marks[len(marks)-1].at); len(marks) < 2 || len(marks) > 9 || last < 0.5 || last > 1 {
				t.Errorf("%d: %v", highest, marks)
			}
			if s.root != (highest > 20*usual) {
				t.Errorf("%d, usually %d: %v", highest, usual, s)
			}
		}
	}
}

// TestOddPictures are those that a program must draw all the same.
func TestOddPictures(t *testing.T) {
	waits := &Waits{}
	waits.Add(0)
	empty := pictureOf(nil)
	never := pictureOf(every(noon, time.Hour, 9), time.Hour)
	for i := range never.Sets {
		never.Sets[i].Waits = &Waits{}
	}
	none := Picture{Timeline: NewTimeline(1), Sets: []Set{{Waits: &Waits{}}}}
	none.Timeline.Add(noon, []bool{true})
	many := Picture{Title: strings.Repeat("a long title ", 99), Timeline: NewTimeline(12)}
	many.Timeline.Add(noon, make([]bool, 12))
	for i := range 12 {
		many.Sets = append(many.Sets, Set{Name: strings.Repeat(fmt.Sprint(i, "/1d, "), 99), Waits: waits, Denied: 1})
	}
	for says, p := range map[string]Picture{
		"There are no attempts.": empty,
		"No attempt is denied.":  none,
		"No wait helps those denied: they ask for more than a limit holds.": never,
		"1 ms":                               many,
		"12:00:00":                           pictureOf(every(noon, 0, 1), 5*time.Second),
		"Attempts and admissions per second": pictureOf(every(noon, 0, 300), time.Second),
	} {
		if said := drawn(t, p).said(); !slices.Contains(said, says) {
			t.Errorf("%q is not in %q", says, said)
		}
	}
}

// TestSize: eight sets that differ in each of 400 bins make about the largest picture that anybody can read.
func TestSize(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	p := Picture{Timeline: NewTimeline(8)}
	for range 8 {
		p.Sets = append(p.Sets, Set{Name: "5/1h", Waits: &Waits{}})
	}
	for range 100_000 {
		decided := make([]bool, 8)
		for i := range decided {
			if decided[i] = r.IntN(8) < i; !decided[i] {
				p.Sets[i].Denied++
				p.Sets[i].Waits.Add(time.Duration(math.Exp2(60 * r.Float64())))
			}
		}
		p.Timeline.Add(noon.Add(time.Duration(r.IntN(400))*time.Hour), decided)
	}
	if d := drawn(t, p); d.size > 150_000 {
		t.Errorf("%d bytes", d.size)
	}
}

// TestFailedWrite: Draw tells that it could not write.
func TestFailedWrite(t *testing.T) {
	if err := Draw(full{}, pictureOf(nil)); err == nil {
		t.Error("no error")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// FuzzWellFormed: whatever the names, the times and the waits are, there is a picture, and each text has its place.
func FuzzWellFormed(f *testing.F) {
	f.Add(uint64(1), "auth.log", "1/5s", "UTC", false)
	f.Add(uint64(2), `<a href="x">&amp;</a>'`, "\x00\x1b\xff\ufffe\u202e", "]]>--", true)
	f.Add(uint64(3), strings.Repeat("\xff", 1000), "\n\t \u00a0", "", false)
	f.Fuzz(func(t *testing.T, seed uint64, title, name, zone string, yearless bool) {
		if len(zone) > 20 {
			t.Skip("a zone is a short word")
		}
		r := rand.New(rand.NewPCG(seed, 0))
		p := pictureOf(randomHistory(r), randomWaits(r)...)
		p.Title, p.Zone, p.Yearless = title, zone, yearless
		p.Sets[1].Name = name
		p.Sets = p.Sets[:1+r.IntN(2)]
		drawn(t, p)
	})
}

func BenchmarkDraw(b *testing.B) {
	p := pictureOf(every(noon, time.Minute, 1500), time.Second, time.Hour)
	for b.Loop() {
		if err := Draw(&bytes.Buffer{}, p); err != nil {
			b.Fatal(err)
		}
	}
}
