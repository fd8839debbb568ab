package replay

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/logs"
)

var update = flag.Bool("update", false, "rewrite sample.log")

// TestSampleIsMade compares sample.log with what makeSample returns. To rewrite it: go test
// ./cmd/slidegate/internal/replay -update.
func TestSampleIsMade(t *testing.T) {
	made := makeSample()
	if *update {
		if err := os.WriteFile("sample.log", made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if string(made) != sample && !*update {
		t.Error("sample.log is not what makeSample makes; run go test with -update")
	}
}

// A sampleLog contains two days of invented logins on an invented host, from addresses reserved for
// documentation.
type sampleLog struct {
	*rand.Rand
	lines []sampleLine
	pid   int
}

type sampleLine struct {
	at   time.Time
	text string
}

func makeSample() []byte {
	s := &sampleLog{Rand: rand.New(rand.NewPCG(1, 2)), pid: 4000}
	s.burst("203.0.113.77", clock(1, "02:14:07"), 118)
	s.patient("198.51.100.23", clock(1, "00:03:40"), 94)
	s.fromOneNetwork(clock(2, "03:41:12"))
	s.forger("198.51.100.99", clock(1, "13:20:31"))
	s.honest()
	s.cron()
	slices.SortStableFunc(s.lines, func(a, b sampleLine) int { return a.at.Compare(b.at) })
	var b bytes.Buffer
	for _, l := range s.lines {
		fmt.Fprintf(&b, "%s bastion %s\n", l.at.Format(time.Stamp), l.text)
	}
	return b.Bytes()
}

// clock returns a time on the first or the second day, which are 31 December and 1 January.
func clock(day int, hms string) time.Time {
	t, err := time.Parse(time.TimeOnly, hms)
	if err != nil {
		panic(err)
	}
	return time.Date(2001, time.December, 30+day, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// say adds a line logged by sshd.
func (s *sampleLog) say(at time.Time, format string, args ...any) {
	s.lines = append(s.lines, sampleLine{at, fmt.Sprintf("sshd[%d]: ", s.pid) + fmt.Sprintf(format, args...)})
}

func (s *sampleLog) between(low, high int) time.Duration {
	return time.Duration(low+s.IntN(high-low+1)) * time.Second
}

func (s *sampleLog) fail(at time.Time, user, address string) {
	s.pid += 1 + s.IntN(5)
	s.say(at, "Failed password for %s from %s port %d ssh2", user, address, 32768+s.IntN(28000))
}

func (s *sampleLog) accept(at time.Time, user, address string) {
	s.pid += 1 + s.IntN(5)
	s.say(at, "Accepted publickey for %s from %s port %d ssh2: ED25519 SHA256:%s", user, address, 32768+s.IntN(28000), strings.Repeat("0123456789", 5)[:43])
	s.say(at, "pam_unix(sshd:session): session opened for user %s(uid=%d) by (uid=0)", user, 1000+len(user))
}

var guesses = []string{"root", "root", "root", "invalid user admin", "invalid user test", "invalid user oracle", "invalid user ubuntu"}

// burst adds a program that tries passwords as fast as it can.
func (s *sampleLog) burst(address string, at time.Time, attempts int) {
	for n := 0; n < attempts; n++ {
		s.fail(at, guesses[s.IntN(len(guesses))], address)
		if n%25 == 24 {
			s.say(at.Add(3*time.Second), "message repeated 5 times: [ Failed password for root from %s port %d ssh2]", address, 32768+s.IntN(28000))
			n += 5
		}
		at = at.Add(s.between(1, 4))
	}
	s.say(at, "Disconnecting authenticating user root %s port 40022: Too many authentication failures [preauth]", address)
}

// patient adds a program that tries four passwords an hour, day and night, to stay below hourly
// limits.
func (s *sampleLog) patient(address string, at time.Time, attempts int) {
	for range attempts {
		s.fail(at, guesses[s.IntN(len(guesses))], address)
		at = at.Add(s.between(15*60, 21*60))
	}
}

// fromOneNetwork adds an attacker with many addresses in one network.
func (s *sampleLog) fromOneNetwork(at time.Time) {
	for n := range 36 {
		s.fail(at, guesses[s.IntN(len(guesses))], fmt.Sprintf("2001:db8:bad:1::%x", 0xa0+n%6))
		at = at.Add(s.between(2, 9))
	}
}

// forger adds an attacker who puts another client's address into the user name.
func (s *sampleLog) forger(address string, at time.Time) {
	for range 9 {
		s.fail(at, "invalid user x from 192.0.2.10 port 22 ssh2", address)
		at = at.Add(s.between(20, 90))
	}
}

// honest adds users who work on the host. Some of them mistype their passwords.
func (s *sampleLog) honest() {
	s.accept(clock(1, "07:58:12"), "alice", "192.0.2.10")
	s.accept(clock(1, "12:47:55"), "alice", "192.0.2.10")
	s.fail(clock(2, "08:03:20"), "alice", "192.0.2.10")
	s.fail(clock(2, "08:03:31"), "alice", "192.0.2.10")
	s.accept(clock(2, "08:03:49"), "alice", "192.0.2.10")
	s.fail(clock(1, "09:15:02"), "bob", "2001:db8:10::b0b")
	s.fail(clock(1, "09:15:05"), "bob", "2001:db8:10::b0b") // too quick for 1/5s
	s.accept(clock(1, "09:15:16"), "bob", "2001:db8:10::b0b")
	s.accept(clock(2, "09:02:44"), "bob", "2001:db8:10::b0b")
	s.fail(clock(1, "22:31:08"), "invalid user carl", "192.0.2.77") // a misspelling of carol
	s.accept(clock(1, "22:31:40"), "carol", "192.0.2.77")
	for _, at := range []string{"10:02:11", "10:02:24", "10:02:40", "10:03:05", "10:03:51"} {
		s.fail(clock(2, at), "dora", "192.0.2.31")
	}
	s.accept(clock(2, "10:04:30"), "dora", "192.0.2.31") // too late for 5/1h
	for hour := 6; hour < 24; hour += 6 {
		s.accept(clock(1, fmt.Sprintf("%02d:30:00", hour)), "backup", "192.0.2.200")
		s.accept(clock(2, fmt.Sprintf("%02d:30:00", hour)), "backup", "192.0.2.200")
	}
}

// cron adds lines logged by another program.
func (s *sampleLog) cron() {
	for hour := range 48 {
		at := clock(1, "00:17:01").Add(time.Duration(hour) * time.Hour)
		s.lines = append(s.lines, sampleLine{at, fmt.Sprintf("CRON[%d]: pam_unix(cron:session): session opened for user root(uid=0) by (uid=0)", 9000+hour)})
	}
}

var documentation = []netip.Prefix{
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32"),
}

// TestSampleHoldsNoRealAddress checks that RFC 5737 and RFC 3849 reserve all addresses in the
// sample for documentation.
func TestSampleHoldsNoRealAddress(t *testing.T) {
	log, err := logs.OpenText("sample.log", sample, logs.Options{})
	for n := 0; err == nil; n++ {
		var a logs.Attempt
		if a, err = log.Next(); err != nil {
			break
		}
		if !slices.ContainsFunc(documentation, func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr(a.Event)) }) {
			t.Errorf("%s is not a documentation address", a.Event)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
