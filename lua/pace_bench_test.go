package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/slidegate/slidegate/internal/redistest"
	"github.com/slidegate/slidegate/lua"
)

// BenchmarkPace measures how long a booking takes in the server, beside an attempt of window that is
// counted under the same limits, and which has as many units before it. The server runs each script
// many times in one call: eight on one record, then the record is as before. ahead is how many turns
// lie ahead at first. The numbers are medians, in us.
func BenchmarkPace(b *testing.B) {
	client := redistest.Client(b)
	for name, limits := range map[string][]string{
		"50 a second":  {"50/1s"},
		"200 a minute": {"200/1m"},
		"three":        {"10/1s", "50/10s", "200/5m"},
		"3000 an hour": {"3000/1h"},
	} {
		b.Run(name, func(b *testing.B) {
			aheads := []int{0, 100, 3000}
			allow, books := []float64{}, [3][]float64{}
			for range max(b.N, 41) {
				allow = append(allow, allowAgain(b, client, limits))
				for i, ahead := range aheads {
					books[i] = append(books[i], bookAgain(b, client, ahead, limits))
				}
			}
			b.ReportMetric(median(allow), "us/allow")
			for i, ahead := range aheads {
				b.ReportMetric(median(books[i]), fmt.Sprintf("us/book:%d", ahead))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// rerun is a script that runs another one many times, eight on one record.
const rerun = `local function decide() %s
	end
	local before = redis.call('GET', KEYS[1])
	for i = 1, 2048 do
		if i %% 8 == 0 then
			if before then redis.call('SET', KEYS[1], before) else redis.call('DEL', KEYS[1]) end
		end
		assert(decide()[1] == 1)
	end
	return redis.call('DEL', KEYS[1])`

// timed returns how many us each run takes.
func timed(b *testing.B, client rueidis.Client, source, key string, args []string) float64 {
	b.Helper()
	cmd := client.B().Eval().Script(fmt.Sprintf(rerun, source)).Numkeys(1).Key(key).Arg(args...).Build()
	begin := time.Now()
	if err := client.Do(b.Context(), cmd).Error(); err != nil {
		b.Fatal(err)
	}
	return float64(time.Since(begin).Microseconds()) / 2048
}

func allowAgain(b *testing.B, client rueidis.Client, limits []string) float64 {
	args := []string{"count", "", "1"}
	for _, l := range limits {
		args = append(args, window.limit(l+"@1ms")...)
	}
	return timed(b, client, strings.Replace(lua.Window, "counting = op == 'count'", "counting = op == 'count'", 1), redistest.Key(b), args)
}

func bookAgain(b *testing.B, client rueidis.Client, ahead int, limits []string) float64 {
	key, script := redistest.Key(b), rueidis.NewLuaScript(lua.Pace)
	args := []string{"book", "", "1"}
	for _, l := range limits {
		args = append(args, ar1.limit(l)...)
	}
	args = append(args, "17592186044416", "1")
	if ahead > 0 {
		before := append([]string{}, args...)
		before[len(before)-1] = "100"
		for left := 1; left > 0; {
			r := must(script.Exec(b.Context(), client, []string{key}, before).AsIntSlice())
			left = 0
			if r[5] <= r[1] { // first of the 100 is not ahead: fill up
				left = 1
			}
		}
		for range ahead/100 - 1 {
			must(script.Exec(b.Context(), client, []string{key}, before).AsIntSlice())
		}
	}
	return timed(b, client, lua.Pace, key, args)
}
