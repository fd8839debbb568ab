package suggest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// A crowd describes who makes attempts in an invented log of two days.
type crowd struct {
	people    int
	spread    float64       // the standard deviation of the logarithm of the users' numbers of attempts
	attackers int           // events that never succeed
	every     time.Duration // the mean time between two attempts of the same attacker
	most      int           // the maximum number of attempts per attacker
	results   bool          // the log is an sshd log; if not set, it is a list of requests
}

// TestAttack checks whether an attack is detected in invented logs, some with and some without an
// attack.
func TestAttack(t *testing.T) {
	for name, tt := range map[string]struct {
		crowd
		want bool
	}{
		"logins of people":                            {crowd{people: 500, spread: 0.5, results: true}, false},
		"logins of people, some of whom try a lot":    {crowd{people: 500, spread: 1.2, results: true}, false},
		"logins of few people":                        {crowd{people: 12, spread: 0.5, results: true}, false},
		"requests of people":                          {crowd{people: 500, spread: 0.7}, false},
		"requests of people, some of whom send a lot": {crowd{people: 500, spread: 1.2}, false},
		"requests of few people":                      {crowd{people: 30, spread: 0.7}, false},

		"one that guesses":                {crowd{people: 500, spread: 0.5, attackers: 1, every: time.Minute, most: 200, results: true}, true},
		"one that guesses slowly":         {crowd{people: 500, spread: 0.5, attackers: 1, every: 20 * time.Minute, most: 200, results: true}, true},
		"many that guess a few times":     {crowd{people: 500, spread: 0.5, attackers: 250, every: time.Hour, most: 4, results: true}, true},
		"nobody but one that guesses":     {crowd{attackers: 1, every: time.Minute, most: 100, results: true}, true},
		"several that send a lot":         {crowd{people: 500, spread: 0.7, attackers: 5, every: time.Minute, most: 5000}, true},
		"several among people with a lot": {crowd{people: 500, spread: 1.2, attackers: 4, every: time.Minute, most: 5000}, true},
		"several among few people":        {crowd{people: 30, spread: 0.7, attackers: 3, every: time.Minute, most: 5000}, true},
	} {
		for seed := range uint64(2) {
			h := read(t, tt.log(seed))
			p, err := h.Propose(t.Context(), 0.001)
			if err != nil || p.Attack != tt.want {
				busiest, most := h.Busiest()
				t.Errorf("%s, seed %d: %t, %v; %d attempts, most by %s: %d; %+v", name, seed, p.Attack, err, h.Attempts, busiest, most, p.Sets)
			}
		}
	}
}

// log returns the lines of the log.
func (c crowd) log(seed uint64) string {
	r, lines := rand.New(rand.NewPCG(seed, 7)), []string{}
	begin := time.Date(2025, 3, 4, 0, 0, 0, 0, time.UTC)
	add := func(at time.Duration, event string, succeeded bool) {
		lines = append(lines, c.line(begin.Add(at), event, succeeded))
	}
	for n := range c.people {
		for left := int(math.Ceil(3 * math.Exp(c.spread*r.NormFloat64()))); left > 0; {
			at := time.Duration(r.Int64N(int64(40 * time.Hour)))
			visit := min(left, 1+r.IntN(5))
			left -= visit
			for i := range visit { // one visit in 25 ends without success
				add(at, fmt.Sprintf("192.0.%d.%d", n/250, n%250), i == visit-1 && r.IntN(25) > 0)
				at += time.Second + time.Duration(r.ExpFloat64()*float64(20*time.Second))
			}
		}
	}
	for n := range c.attackers {
		at := time.Duration(r.Int64N(int64(time.Hour)))
		for i := 0; i < c.most && at < 45*time.Hour; i++ {
			add(at, fmt.Sprintf("203.0.%d.%d", n/250, n%250), false)
			at += time.Duration(r.ExpFloat64() * float64(c.every))
		}
	}
	slices.Sort(lines) // lines begin with their times
	return strings.Join(lines, "")
}

// line returns the line for an attempt.
func (c crowd) line(at time.Time, event string, succeeded bool) string {
	if !c.results {
		return at.Format(time.RFC3339) + "," + event + "\n"
	}
	result := "Failed"
	if succeeded {
		result = "Accepted"
	}
	return at.Format("2006-01-02T15:04:05-07:00") + " h sshd[1]: " + result + " password for a from " + event + " port 1 ssh2\n"
}
