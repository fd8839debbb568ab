package monitoring_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/test/redistest"
)

const (
	dashboardFile = "../../docs/monitoring/dashboard.json"
	alertsFile    = "../../docs/monitoring/alerts.yml"
)

// TestMonitoring runs Prometheus with four proxies and a program under load, on a Redis that
// becomes slow and hangs. It checks that each dashboard query and each alert returns data at some
// point, with the labels that its legend or texts use, and that none uses a metric, a label or a
// value that is not exported.
func TestMonitoring(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	p := startPrometheus(t, redistest.Program(t, "prometheus", "prometheus"))
	pending := append(dashboard(t).queries(), p.alerts(t)...)
	t.Logf("%d queries", len(pending))
	ask := func() {
		var still []query
		for _, q := range pending {
			if !p.answers(t, q) {
				still = append(still, q)
			}
		}
		pending = still
	}
	all := pending
	for end := time.Now().Add(2 * time.Minute); len(pending) > 0 && time.Now().Before(end); {
		p.redis.slow(t)
		ask()
		p.redis.hang(t, ask)
	}
	for _, q := range pending {
		t.Errorf("%s: no data from %s", q.name, q.expr)
	}
	exported := p.exported(t)
	for _, q := range all {
		for _, unknown := range exported.unknownNames(q.expr) {
			t.Errorf("%s: %s, in %s", q.name, unknown, q.expr)
		}
	}
}

// TestAlerts checks that promtool accepts the alerts, and that each fires when it should.
func TestAlerts(t *testing.T) {
	redistest.Program(t, "prometheus", "prometheus") // promtool is part of the same package
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", "testdata/alerts.yml"}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// Patterns for the parts of PromQL that the dashboard and the alerts use.
var (
	texts     = regexp.MustCompile(`"[^"]*"`)
	grouping  = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	selection = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}`)
	matcher   = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	duration  = regexp.MustCompile(`\[[^\]]*\]`)
	word      = regexp.MustCompile(`[a-zA-Z_:][\w:]*\s*\(?`)
	operators = regexp.MustCompile(`^(and|or|unless|bool|offset)\s*\(?$`)
)

// unknownNames returns those metrics, labels and values in expr that are not exported.
func (e exports) unknownNames(expr string) (all []string) {
	var metrics, groups []string
	for _, found := range selection.FindAllStringSubmatch(expr, -1) {
		all = append(all, e.unmatched(found[1], found[2])...)
	}
	rest := selection.ReplaceAllString(texts.ReplaceAllString(expr, `""`), "$1 ")
	for _, found := range grouping.FindAllStringSubmatch(rest, -1) {
		groups = append(groups, strings.FieldsFunc(found[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	rest = duration.ReplaceAllString(grouping.ReplaceAllString(rest, " "), " ")
	for _, w := range word.FindAllString(rest, -1) {
		if !strings.HasSuffix(w, "(") && !operators.MatchString(w) {
			metrics = append(metrics, strings.TrimSpace(w))
		}
	}
	for _, metric := range metrics {
		if e[metric] == nil {
			all = append(all, "no program exports the metric "+metric)
			continue
		}
		for _, label := range groups {
			if e[metric][label] == nil {
				all = append(all, metric+" has no label "+label)
			}
		}
	}
	return all
}

// unmatched returns those labels and values in a selector that the metric does not have.
func (e exports) unmatched(metric, selection string) (all []string) {
	for _, found := range matcher.FindAllStringSubmatch(selection, -1) {
		label := found[1]
		if e[metric] != nil && e[metric][label] == nil {
			all = append(all, metric+" has no label "+label)
			continue
		}
		for value := range strings.SplitSeq(found[3], "|") {
			if value != ".*" && value != ".+" && e[metric] != nil && !e[metric][label][value] {
				all = append(all, metric+" has no "+label+" "+value)
			}
		}
	}
	return all
}

// TestUnknownNames checks that unknownNames finds names that are not exported.
func TestUnknownNames(t *testing.T) {
	e := exports{
		"requests_total":  {"route": {"/": true}, "decision": {"allowed": true, "denied": true}},
		"outages":         {"route": {"/": true}},
		"seconds_bucket":  {"route": {"/": true}, "le": {"0.1": true}},
		"resident_memory": {"job": {"proxy": true}},
	}
	for expr, want := range map[string][]string{
		`sum by (route) (rate(requests_total{decision=~"allowed|denied"}[5m])) / sum(rate(requests_total[5m])) > 0.5`: nil,
		`histogram_quantile(0.99, sum by (le) (rate(seconds_bucket{route=~".*"}[1m])))`:                               nil,
		`rate(requests_total{route=~".*"}[5m]) and on (route) outages > 0`:                                            nil,
		`resident_memory and on (job) requests_total`:                                                                 {"requests_total has no label job"},
		`rate(request_total[5m])`:                                          {"no program exports the metric request_total"},
		`rate(request_total{route="/"}[5m])`:                               {"no program exports the metric request_total"},
		`requests_total{decision="refused"}`:                               {"requests_total has no decision refused"},
		`requests_total{decision!~"denied|gone"}`:                          {"requests_total has no decision gone"},
		`requests_total{limiter=~".*"}`:                                    {"requests_total has no label limiter"},
		`sum by (le) (rate(requests_total{decision="denied"}[1m])) > 0.05`: {"requests_total has no label le"},
		`outages or gauge`:                                                 {"no program exports the metric gauge"},
	} {
		if diff := cmp.Diff(want, e.unknownNames(expr)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", expr, diff)
		}
	}
}
