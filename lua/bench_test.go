package lua_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// BenchmarkScripts measures how long each script takes in the server. The server runs the script
// many times in one call, so neither the network nor other processes interfere. The script makes
// eight attempts on each event, all of which are allowed, on the server's clock. The scripts
// alternate, and so do calls for one event and calls for 64 events. The numbers are medians: the µs
// per decision in a call for one event, the ratio of the two scripts, and, for each script, the
// fraction of that time that a decision takes in a call for 64 events. What a server spends on a
// call outside the script is not included.
func BenchmarkScripts(b *testing.B) {
	client := redistest.Client(b)
	for name, limits := range map[string][]string{
		"limits=1": {"50/1h@1ms"},
		"limits=3": {"10/5s@1ms", "50/1h@1ms", "200/24h@24m"},
	} {
		b.Run(name, func(b *testing.B) {
			alone, among := [2][]float64{}, [2][]float64{}
			for range max(b.N, 41) {
				for i, s := range scripts {
					alone[i] = append(alone[i], s.loop(b, client, 1, limits))
					among[i] = append(among[i], s.loop(b, client, 64, limits))
				}
			}
			us := [2]float64{median(alone[0]), median(alone[1])}
			b.ReportMetric(us[0], "us/window")
			b.ReportMetric(us[1], "us/ar1")
			b.ReportMetric(us[1]/us[0], "ar1/window")
			b.ReportMetric(median(among[0])/us[0], "window:64/1")
			b.ReportMetric(median(among[1])/us[1], "ar1:64/1")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// looped is the approximate number of decisions that one run of the loop makes.
const looped = 2048

// loop returns how many µs a decision of the script takes in calls for the given number of events.
func (s script) loop(b *testing.B, client rueidis.Client, events int, limits []string) float64 {
	calls := looped / events
	body := `local function decide() ` + s.sent("allow").source + `
		end
		for i = 1, ` + strconv.Itoa(calls) + ` do
			if i % 8 == 0 then redis.call('DEL', unpack(KEYS)) end
			assert(not decide().err)
		end
		return redis.call('DEL', unpack(KEYS))`
	names := make([]string, events)
	for i := range names {
		names[i] = redistest.Key(b)
	}
	args := withUnits(s.dated("allow", "", "1", limits...), slices.Repeat([]string{"1"}, events)...)
	cmd := client.B().Eval().Script(body).Numkeys(int64(events)).Key(names...).Arg(args...).Build()
	begin := time.Now()
	if err := client.Do(b.Context(), cmd).Error(); err != nil {
		b.Fatal(err)
	}
	return float64(time.Since(begin).Microseconds()) / looped
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
