package lua_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
)

// BenchmarkScripts measures how long each script takes in the server. The server runs it many times
// in one call, so neither the network nor other processes interfere: eight attempts on an event,
// all admitted, then the next event, on the server's clock. The scripts alternate. The numbers are
// medians, in us for each decision, and the ratio of the two.
func BenchmarkScripts(b *testing.B) {
	client := redistest.Client(b)
	for name, limits := range map[string][]string{
		"limits=1": {"50/1h@1ms"},
		"limits=3": {"10/5s@1ms", "50/1h@1ms", "200/24h@24m"},
	} {
		b.Run(name, func(b *testing.B) {
			spent := [2][]float64{}
			for range max(b.N, 41) {
				for i, s := range scripts {
					spent[i] = append(spent[i], s.loop(b, client, limits))
				}
			}
			us := [2]float64{median(spent[0]), median(spent[1])}
			b.ReportMetric(us[0], "us/window")
			b.ReportMetric(us[1], "us/ar1")
			b.ReportMetric(us[1]/us[0], "ar1/window")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// looped is the number of decisions that one call makes.
const looped = 2000

// loop returns how many us a decision takes the script.
func (s script) loop(b *testing.B, client rueidis.Client, limits []string) float64 {
	const body = `local decide = loadstring(KEYS[2]) 
		for i = 1, 2000 do if i % 8 == 0 then redis.call('DEL', KEYS[1]) end decide() end
		return redis.call('DEL', KEYS[1])`
	args := []string{"allow", "", "1"}
	for _, l := range limits {
		args = append(args, s.limit(l)...)
	}
	cmd := client.B().Eval().Script(body).Numkeys(2).Key(redistest.Key(b), s.source).Arg(args...).Build()
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
