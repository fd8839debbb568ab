package main

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/internal/test/redistest"
)

// TestEveryFormatIsDecidedExactly checks that the same history gives the model's counts in every
// format, plain and compressed, when replayed in memory. For one format, it checks this on a server
// and on a cluster too.
func TestEveryFormatIsDecidedExactly(t *testing.T) {
	moments := history(redistest.UnlessShort(1500, 150))
	decided := func() *exactLog {
		exact := newExactLog(map[string]exactLimit{"2/10s": {2, 10 * time.Second}, "7/5m": {7, 5 * time.Minute}})
		for _, m := range moments {
			exact.attempt(m.address, m.at)
		}
		return exact
	}
	if exact := decided(); exact.Denied < len(moments)/6 || exact.Allowed < len(moments)/6 {
		t.Errorf("a poor history: %+v", exact.counts)
	}
	t.Run("side by side", func(t *testing.T) {
		for name, line := range formats {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				exact, log := decided(), strings.Builder{}
				log.WriteString(headers[name])
				for _, m := range moments {
					log.WriteString(line(m) + "\n")
				}
				for _, file := range []string{write(t, log.String()), write(t, packed(t, log.String()))} {
					for place, args := range places(t) {
						if place != "memory" && name != "columns" {
							continue
						}
						got := replayed(t, slices.Concat(args, formatFlags[name], []string{"--limit", "2/10s,7/5m", file})...)
						if diff := cmp.Diff(exact.result(got.Sets[0].Top), countsOf(&got)); diff != "" || got.Attempts != len(moments) || got.Unreadable != 0 {
							t.Errorf("%s differs from the exact log (-exact +replay):\n%s", place, diff)
						}
					}
				}
			})
		}
	})
	checkForgotten(t, "")
}

// TestCompareIsManyReplays checks that each set given with --compare has the same outcome as when
// it is replayed alone.
func TestCompareIsManyReplays(t *testing.T) {
	var log strings.Builder
	for _, m := range history(redistest.UnlessShort(2000, 500)) {
		log.WriteString(formats["journal"](m) + "\n")
	}
	file := write(t, log.String())
	sets := []string{"2/10s,7/5m", "1/5s", "100/1m", "1/5s,3/1m,20/1h"}
	for place, args := range places(t) {
		compared := replayed(t, append(args, "--compare", sets[0], "--compare", sets[1], "--compare", sets[2], "--compare", sets[3], file)...)
		for i, set := range sets {
			alone := replayed(t, "--limit", set, file)
			if diff := cmp.Diff(asJSON(t, alone.Sets[0]), asJSON(t, compared.Sets[i])); diff != "" {
				t.Errorf("%s: %s (-alone +compared):\n%s", place, set, diff)
			}
		}
		checkForgotten(t, compared.Limiter)
	}
}

// asJSON returns v as the program prints it.
func asJSON(t *testing.T, v any) string {
	t.Helper()
	var b strings.Builder
	if err := output.JSON(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSort checks that with --sort a shuffled log has the same outcome as the ordered log, and that
// no attempt is out of order.
func TestSort(t *testing.T) {
	moments := history(2000)
	rand.New(rand.NewPCG(5, 6)).Shuffle(len(moments), func(i, j int) { moments[i], moments[j] = moments[j], moments[i] })
	inOrder, shuffled := strings.Builder{}, strings.Builder{}
	for _, m := range history(2000) {
		inOrder.WriteString(formats["columns"](m) + "\n")
	}
	for _, m := range moments {
		shuffled.WriteString(formats["columns"](m) + "\n")
	}
	want := replayed(t, write(t, inOrder.String()))
	got := replayed(t, "--sort", write(t, shuffled.String()))
	if diff := cmp.Diff(countsOf(&want), countsOf(&got)); diff != "" || got.OutOfOrder != 0 || !got.Sorted {
		t.Errorf("%d out of order, %s", got.OutOfOrder, diff)
	}
	if got := replayed(t, write(t, shuffled.String())); got.OutOfOrder < 1000 || got.FurthestBack < 1000_000 {
		t.Errorf("not sorted, only %d are out of order, by up to %d ms", got.OutOfOrder, got.FurthestBack)
	}
}

func TestStandardInput(t *testing.T) {
	log, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := command(t.Context(), "replay", "--json")
	got, stderr, status := commandWith(t.Context(), strings.NewReader(packed(t, string(log))), "replay", "--json", "-")
	got = strings.Replace(got, "\"sample\": false,\n  \"files\": [\n    \"-\"\n  ],", `"sample": true,`, 1)
	if diff := cmp.Diff(want, got); diff != "" || status != 0 {
		t.Errorf("status %d, %s (-sample +stdin):\n%s", status, stderr, diff)
	}
}

// TestFieldIsNamed checks that the report names the field that is the event in most lines.
func TestFieldIsNamed(t *testing.T) {
	log := write(t, `{"ts":1741064767,"address":"localhost:2019"}
{"ts":1741064768,"request":{"remote_ip":"192.0.2.1"}}
{"ts":1741064769,"request":{"remote_ip":"192.0.2.1"}}
`)
	if stdout, _, status := command(t.Context(), "replay", log); status != 0 || !strings.Contains(stdout, "from 1 event by request.remote_ip\n") {
		t.Errorf("status %d: %s", status, stdout)
	}
}
