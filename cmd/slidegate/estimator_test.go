package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// exactLevel models ar1 for one event and one limit: the sum of all allowed units, each decayed
// since it was allowed. It shares no code with the program.
type exactLevel struct {
	max     float64
	per     time.Duration
	allowed []time.Time
}

func (l *exactLevel) at(t time.Time) (x float64) {
	for _, a := range l.allowed {
		x += math.Exp(-t.Sub(a).Seconds() / l.per.Seconds())
	}
	if x < 0.25 {
		return 0
	}
	return x
}

// fits reports whether another unit fits now or, if not, in how many ms it will.
func (l *exactLevel) fits(t time.Time) (fits bool, wait int64) {
	room := 1/(1-math.Exp(-1/l.max)) - 1
	x := l.at(t)
	return x <= room, int64(math.Ceil(l.per.Seconds() * 1000 * math.Log(x/room)))
}

func (l *exactLevel) add(t time.Time) {
	if l.at(t) == 0 {
		l.allowed = nil
	}
	l.allowed = append(l.allowed, t)
}

// decideExactly replays moments on the model. It returns the number of allowed units, the denials
// by each limit, and the longest wait.
func decideExactly(moments []moment, limits map[string]exactLevel) (allowed int, deniedBy map[string]int, longest int64) {
	levels := map[string]*exactLevel{}
	deniedBy = map[string]int{}
	for _, m := range moments {
		denied := false
		for name, limit := range limits {
			key := name + " " + m.address
			if levels[key] == nil {
				levels[key] = &exactLevel{max: limit.max, per: limit.per}
			}
			if fits, wait := levels[key].fits(m.at); !fits {
				denied, longest = true, max(longest, wait)
				deniedBy[name]++
			}
		}
		if denied {
			continue
		}
		allowed++
		for name := range limits {
			levels[name+" "+m.address].add(m.at)
		}
	}
	return allowed, deniedBy, longest
}

// TestEstimatorAR1 compares a replay by levels with the model: in memory, on a server and on a
// cluster. It also checks that no keys are left behind.
func TestEstimatorAR1(t *testing.T) {
	moments := history(2000)
	var log strings.Builder
	for _, m := range moments {
		log.WriteString(formats["journal"](m) + "\n")
	}
	allowed, deniedBy, longest := decideExactly(moments, map[string]exactLevel{"2/10s": {max: 2, per: 10 * time.Second}, "7/5m": {max: 7, per: 5 * time.Minute}})
	for place, args := range places(t) {
		got := replayed(t, append(args, "--estimator", "ar1", "--limit", "2/10s,7/5m", write(t, log.String()))...)
		diff := cmp.Diff(deniedBy, countsOf(&got).DeniedBy)
		if diff != "" || got.Estimator != "ar1" || got.Sets[0].Allowed != allowed || got.Sets[0].LongestWait != longest {
			t.Errorf("%s: %d allowed, want %d; a wait of %d, want %d ms; %s", place, got.Sets[0].Allowed, allowed, got.Sets[0].LongestWait, longest, diff)
		}
		checkForgotten(t, got.Limiter)
	}
	if allowed < 300 || len(deniedBy) < 2 {
		t.Errorf("this history proves too little: %d allowed, denied %v", allowed, deniedBy)
	}
}

// TestEstimatorIsReported checks that the report, the chart, and errors about flags name the
// estimator.
func TestEstimatorIsReported(t *testing.T) {
	file := t.TempDir() + "/levels.svg"
	stdout, stderr, status := command(t.Context(), "replay", "--estimator", "ar1", "--limit", "100/1m", "--picture", file)
	if status != 0 || !strings.Contains(stdout, "estimator   ar1: a limit allows MAX at once, and up to 2 x MAX in one PER\n") || strings.Contains(stdout, "100/1m@") {
		t.Errorf("status %d: %s%s", status, stdout, stderr)
	}
	checkSVG(t, text(t, file), "denied by levels (ar1)")
	for says, args := range map[string][]string{
		`there is no estimator "ewma"; choose window or ar1`: {"--estimator", "ewma"},
		"its value is missing; write window or ar1":          {"--estimator"},
		"it is given twice; replay twice":                    {"--estimator", "ar1", "--estimator", "window"},
		"5/1h@10m has buckets, and a level":                  {"--estimator", "ar1", "--limit", "5/1h@10m"},
		"choose at most 10000000 units":                      {"--estimator", "ar1", "--limit", "20000000/1h"},
	} {
		if _, stderr, status := command(t.Context(), append([]string{"replay"}, args...)...); status != 1 || !strings.Contains(stderr, says) {
			t.Errorf("status %d: %s, not %q", status, stderr, says)
		}
	}
}

// TestNeedlessLimit checks that exactly those limits are reported that deny nothing that another
// limit does not.
func TestNeedlessLimit(t *testing.T) {
	for limits, want := range map[string]string{
		"100/1m,5/1h":       "\n100/1m@1s denies nothing beyond 5/1h, which allows no more in a longer time; leave it out.\n",
		"5/1m,5/1h":         "\n5/1m denies nothing beyond 5/1h, which allows no more in a longer time; leave it out.\n",
		"3/1m,5/1h,4/1d":    "\n5/1h denies nothing beyond 4/1d, which allows no more in a longer time; leave it out.\n",
		"4/1m,5/1h":         "",
		"1/5s,5/1h,20/1d":   "",
		"100/60m,100/60m1s": "", // the first counts for up to a minute longer
	} {
		for _, how := range []string{"window", "ar1"} {
			want := want
			if how == "ar1" {
				want = strings.Replace(want, "@1s", "", 1)
				if limits == "100/60m,100/60m1s" {
					continue // levels have no buckets
				}
			}
			stdout, stderr, status := command(t.Context(), "replay", "--estimator", how, "--limit", limits)
			if status != 0 || !strings.Contains(stdout, want) || strings.Contains(stdout, "denies nothing beyond") != (want != "") {
				t.Errorf("%s by %s: status %d, %s%s", limits, how, status, stderr, stdout)
			}
		}
	}
	p := replayed(t, "--limit", "100/1m,5/1h")
	if l := p.Sets[0].Limits; l[0].Needless != "5/1h" || l[1].Needless != "" || l[0].Denied != 0 {
		t.Errorf("%+v", l)
	}
}
