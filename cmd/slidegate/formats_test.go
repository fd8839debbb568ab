package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/cmd/slidegate/internal/output"
	"github.com/slidegate/slidegate/internal/redistest"
)

// A moment is one attempt of a history that every format can express.
type moment struct {
	at      time.Time
	address string
}

// history returns a made-up history, at whole seconds and in order. Some addresses keep retrying,
// some do not.
func history(n int) (all []moment) {
	r := rand.New(rand.NewPCG(3, 4))
	at := time.Date(2025, time.December, 31, 22, 50, 0, 0, time.UTC)
	for range n {
		at = at.Add(time.Duration(r.IntN(3)) * time.Second)
		all = append(all, moment{at, fmt.Sprintf("192.0.2.%d", 1+r.IntN(1+r.IntN(40)))})
	}
	return all
}

// formats write a moment as one line each.
var formats = map[string]func(moment) string{
	"syslog": func(m moment) string {
		return m.at.Format(time.Stamp) + " bastion sshd[7]: Failed password for root from " + m.address + " port 4022 ssh2"
	},
	"journal": func(m moment) string {
		return m.at.Format("2006-01-02T15:04:05-0700") + " bastion sshd-session[7]: Accepted publickey for alice from " + m.address + " port 4022 ssh2: ED25519 SHA256:abc"
	},
	"common": func(m moment) string {
		return m.address + " - - [" + m.at.In(time.FixedZone("", -3*3600-1800)).Format("02/Jan/2006:15:04:05 -0700") + `] "GET /index.html HTTP/1.1" 200 2326`
	},
	"combined": func(m moment) string {
		return m.address + " - alice [" + m.at.Format("02/Jan/2006:15:04:05 -0700") + `] "POST /login HTTP/2.0" 401 97 "https://example.org/" "Mozilla/5.0 (\"quoted\")"`
	},
	"json": func(m moment) string {
		return fmt.Sprintf(`{"level":"info","time":%d.25,"event":%q,"request":{"remote_ip":"203.0.113.1"}}`, m.at.Unix(), m.address)
	},
	"json-rfc3339": func(m moment) string {
		return fmt.Sprintf(`{"event":%q,"units":1,"time":%q}`, m.address, m.at.Format(time.RFC3339Nano))
	},
	"vhost": func(m moment) string {
		return "www.example.org:443 " + m.address + " - - [" + m.at.Format("02/Jan/2006:15:04:05 -0700") + `] "GET / HTTP/1.1" 200 5124 "-" "curl/8.5.0"`
	},
	"alb": func(m moment) string {
		return "h2 " + m.at.Format("2006-01-02T15:04:05.000000Z") + " app/web/50dc6c495c0c9188 " + m.address +
			`:2817 10.0.0.66:9000 0.000 0.002 0.000 200 200 5 257 "GET https://example.org:443/a HTTP/2.0" "curl/8.5.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2`
	},
	"slog": func(m moment) string {
		return "time=" + m.at.Format("2006-01-02T15:04:05.000Z07:00") + ` level=WARN msg="wrong password" user="alice smith" remote_addr=` + m.address + ":4022"
	},
	"go-log": func(m moment) string {
		return m.at.Format("2006/01/02 15:04:05.000000") + " WARN wrong password user=alice ip=" + m.address
	},
	"docker-file": func(m moment) string {
		return `{"log":"{\"msg\":\"wrong password\",\"client_ip\":\"` + m.address + `\"}\n","stream":"stdout","time":"` + m.at.Format("2006-01-02T15:04:05.000000000Z07:00") + `"}`
	},
	"docker-logs": func(m moment) string {
		return m.at.Format("2006-01-02T15:04:05.000000000Z07:00") + " " + m.address + ` - - [04/Mar/2025:05:06:07 +0000] "GET / HTTP/1.1" 200 5124`
	},
	"caddy": func(m moment) string {
		return fmt.Sprintf(`{"level":"info","ts":%d.089,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":%q,"remote_port":"4022","client_ip":%q,"proto":"HTTP/2.0","method":"POST","host":"example.org","uri":"/login","headers":{"User-Agent":["curl/8.5.0"]}},"user_id":"","duration":0.0012,"size":42,"status":401}`,
			m.at.Unix(), m.address, m.address)
	},
	"traefik": func(m moment) string {
		return fmt.Sprintf(`{"ClientAddr":"%s:4022","ClientHost":%q,"DownstreamStatus":401,"Duration":81733,"RequestMethod":"POST","RequestPath":"/login","level":"info","msg":"","time":%q}`,
			m.address, m.address, m.at.Format(time.RFC3339))
	},
	"csv": func(m moment) string {
		return m.at.Format(time.DateTime) + `,"Smith, Alice",` + m.address + ",401"
	},
	"python": func(m moment) string {
		return m.at.Format(time.DateTime) + ",089 - app.login - WARNING - failed login of " + m.address
	},
	"columns": func(m moment) string { return fmt.Sprintf("%d.250,%s", m.at.Unix(), m.address) },
}

// headers are the first lines of formats with a header, and formatFlags the flags that some formats
// need.
var (
	headers     = map[string]string{"csv": "timestamp,user,ip,status\n"}
	formatFlags = map[string][]string{"python": {"--by", "login of (\\S+)"}}
)

// TestEveryFormatIsDecidedExactly checks that the same history in every format, plain and
// compressed, gives the counts of the model, in memory, on a server and on a cluster.
func TestEveryFormatIsDecidedExactly(t *testing.T) {
	moments := history(redistest.UnlessShort(1500, 200))
	decided := func() *exactLog {
		exact := newExactLog(map[string]exactLimit{"2/10s": {2, 10 * time.Second}, "7/5m": {7, 5 * time.Minute}})
		for _, m := range moments {
			exact.attempt(m.address, m.at)
		}
		return exact
	}
	if exact := decided(); exact.Denied < len(moments)/6 || exact.Admitted < len(moments)/6 {
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

// TestCompareIsManyReplays checks that each set of --compare has the same outcome as alone.
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

// asJSON returns a value as the program prints it.
func asJSON(t *testing.T, v any) string {
	t.Helper()
	var b strings.Builder
	if err := output.JSON(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSort checks that with --sort a log in any order has the outcome of the log in order, and no
// attempt out of order.
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
