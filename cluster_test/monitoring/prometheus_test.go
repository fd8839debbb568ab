package monitoring_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// scraper is a running Prometheus, with the Redis of the programs that it scrapes.
type scraper struct {
	url   string
	redis *underLoad
}

// startPrometheus starts Prometheus with the alerts, on programs under load.
func startPrometheus(t *testing.T, program string) *scraper {
	t.Helper()
	l := startLoad(t, build(t))
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [%q]\nscrape_configs:\n"+
		"- {job_name: proxy, static_configs: [{targets: [%s]}]}\n- {job_name: program, static_configs: [{targets: [%s]}]}\n",
		must(filepath.Abs(alertsFile)), strings.Join(l.proxies, ", "), l.program)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	found := run(t, regexp.MustCompile(`(?s)msg="Listening on" address=(\S+).*Server is ready`), program,
		"--config.file", config, "--storage.tsdb.path", filepath.Join(t.TempDir(), "data"), "--web.listen-address", "127.0.0.1:0")
	return &scraper{url: "http://" + found[1], redis: l.redis}
}

// killOnEOF is a shell command that kills a program when its standard input ends, as it does when
// the tests die.
const killOnEOF = `"$@" </dev/null & read -r forever; kill -KILL $!; wait`

// run starts a program that ends with the test. It waits until ready matches the log, and returns
// the match.
func run(t *testing.T, ready *regexp.Regexp, program string, args ...string) (found []string) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", killOnEOF, "sh", program}, args...)...)
	hold, log := must(cmd.StdinPipe()), must(cmd.StderrPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close(); _ = cmd.Wait() })
	lines := bufio.NewScanner(log)
	var all strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&all, lines.Text())
		if found = ready.FindStringSubmatch(all.String()); found != nil {
			go func() {
				for lines.Scan() { // or it would block
				}
			}()
			return found
		}
	}
	t.Fatalf("%s ended before it was ready:\n%s", program, &all)
	return nil
}

// get calls the API, and decodes the field data of its answer.
func (p *scraper) get(t *testing.T, path string, data any) {
	t.Helper()
	res, err := http.Get(p.url + "/api/v1/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %v %s", path, err, answer.Error)
	}
}

// answers reports whether a query returns at least one number. It checks that all series have the
// labels that the query names.
func (p *scraper) answers(t *testing.T, q query) bool {
	t.Helper()
	var found struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	p.get(t, "query?query="+url.QueryEscape(q.expr), &found)
	numbers := 0
	for _, series := range found.Result {
		if series.Value[1] != "NaN" {
			numbers++
		}
		for _, label := range q.labels {
			if series.Metric[label] == "" {
				t.Errorf("%s: no %s in %v, from %s", q.name, label, series.Metric, q.expr)
			}
		}
	}
	return numbers > 0
}

// line is a series of values, with their times in seconds.
type line struct {
	Metric map[string]string
	Values [][2]any
}

// lines returns the answer to a query for each second of a period.
func (p *scraper) lines(t *testing.T, expr string, from, to time.Time) []line {
	t.Helper()
	var found struct{ Result []line }
	p.get(t, fmt.Sprintf("query_range?query=%s&start=%d&end=%d&step=1", url.QueryEscape(expr), from.Unix(), to.Unix()), &found)
	return found.Result
}

// alerts returns the alerts that Prometheus has loaded.
func (p *scraper) alerts(t *testing.T) (all []query) {
	t.Helper()
	var loaded struct {
		Groups []struct {
			Rules []struct {
				Name, Query string
				Annotations map[string]string
			}
		}
	}
	p.get(t, "rules", &loaded)
	for _, group := range loaded.Groups {
		for _, rule := range group.Rules {
			q := query{name: "alert " + rule.Name, expr: rule.Query}
			for _, text := range rule.Annotations {
				q.labels = append(q.labels, labelsIn(text)...)
			}
			all = append(all, q)
		}
	}
	if len(all) == 0 {
		t.Fatal("no alerts are loaded")
	}
	return all
}

// exported returns all metrics that Prometheus has scraped.
func (p *scraper) exported(t *testing.T) exports {
	t.Helper()
	var all []map[string]string
	p.get(t, "series?match[]="+url.QueryEscape(`{job!=""}`), &all)
	e := exports{}
	for _, series := range all {
		labels := e[series["__name__"]]
		if labels == nil {
			labels = map[string]map[string]bool{}
			e[series["__name__"]] = labels
		}
		for label, value := range series {
			if labels[label] == nil {
				labels[label] = map[string]bool{}
			}
			labels[label][value] = true
		}
	}
	return e
}
