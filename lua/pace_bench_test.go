package lua_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

// BenchmarkPace measures how long a booking takes in the server, compared with allow of window
// under the same limits. The server runs each script many times in one call, so neither the network
// nor other processes interfere: after eight runs on one record, the record is restored. For
// window, and with 0 turns ahead, there is no record at first. The numbers are medians: the µs per
// run, and the ratio to allow with the given number of turns ahead. What a server spends on a call
// outside the script is not included.
func BenchmarkPace(b *testing.B) {
	client := redistest.Client(b)
	for name, limits := range map[string][]string{
		"50 a second": {"50/1s"}, "3000 an hour": {"3000/1h"}, "three limits": {"10/1s", "100/1m", "1000/1h"},
	} {
		b.Run(name, func(b *testing.B) {
			allow, books, aheads := []float64{}, [3][]float64{}, []int{0, 100, 3000}
			var exact []string
			for _, l := range limits {
				exact = append(exact, l+"@1ms")
			}
			for range max(b.N, 41) {
				allow = append(allow, rerun(b, client, window, redistest.Key(b), window.with("allow", "", "1", exact...)))
				for i, ahead := range aheads {
					books[i] = append(books[i], booking(b, client, ahead, limits))
				}
			}
			b.ReportMetric(median(allow), "us/allow")
			for i, ahead := range aheads {
				b.ReportMetric(median(books[i]), fmt.Sprintf("us/book:%d", ahead))
				b.ReportMetric(median(books[i])/median(allow), fmt.Sprintf("book:%d/allow", ahead))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// booking returns how many µs a booking takes with the given number of turns ahead.
func booking(b *testing.B, client rueidis.Client, ahead int, limits []string) float64 {
	b.Helper()
	key, lua, args := redistest.Key(b), rueidis.NewLuaScript(pace.source), []string{"book", "", "1"}
	for _, l := range limits {
		args = append(args, pace.limit(l)...)
	}
	book := func(horizon string, turns int) []int64 {
		return must(lua.Exec(b.Context(), client, []string{key}, append(change(2, digits(int64(turns)))(slices.Clone(args)), horizon, "1")).AsIntSlice())
	}
	const far = "17592186044416"
	for ahead > 0 && book("0", 256)[0] == 256 {
		continue // these turns are now
	}
	for left := ahead; left > 0; left -= 100 {
		book(far, 100)
	}
	return rerun(b, client, pace, key, append(args, far, "1"))
}

// rerun returns how many µs a call of the script takes, over repeated series of eight on the record
// of a key.
func rerun(b *testing.B, client rueidis.Client, s script, key string, args []string) float64 {
	b.Helper()
	const calls = 2048
	body := fmt.Sprintf(`local function decide() %s
		end
		local before = redis.call('GET', KEYS[1])
		for i = 1, %d do
			if i %% 8 == 0 then
				if before then redis.call('SET', KEYS[1], before) else redis.call('DEL', KEYS[1]) end
			end
			assert(decide()[1] == 1)
		end
		return redis.call('DEL', KEYS[1])`, s.source, calls)
	cmd := client.B().Eval().Script(body).Numkeys(1).Key(key).Arg(args...).Build()
	begin := time.Now()
	if err := client.Do(b.Context(), cmd).Error(); err != nil {
		b.Fatal(err)
	}
	return float64(time.Since(begin).Microseconds()) / calls
}

// median returns the median of at least one number, which it sorts.
func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
