package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// Labels that targets have.
var targetLabels = []string{"job", "instance"}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// named is a query with the place that names it, and the labels that its legend or annotations use.
type named struct {
	place, expr string
	uses        []string
}

func TestAlertsNameRealMetrics(t *testing.T) {
	check(t, alertQueries(t), 25)
}

func TestDashboardsNameRealMetrics(t *testing.T) {
	check(t, dashboardQueries(t), 100)
}

// A check that finds nothing would pass everything.
func TestCheckFindsFaults(t *testing.T) {
	metrics := map[string]metric{
		"a_total":  {kind: "counter", labels: []string{"x"}},
		"g":        {kind: "gauge"},
		"h_bucket": {kind: "histogram", labels: []string{"le", "x"}},
	}
	for expr, fault := range map[string]string{
		`rate(b_total[5m])`:              "b_total does not exist",
		`rate(a_total{y="1"}[5m])`:       "a_total has no label y",
		`sum by (y) (rate(a_total[5m]))`: "no metric has the label y",
		`rate(g[5m])`:                    "rate of the gauge g",
		`sum(a_total)`:                   "the counter a_total without rate or increase",
		`sum by (le`:                     "unclosed left parenthesis",
		`histogram_quantile(0.5, sum by (x) (rate(h_bucket[5m])))`: "histogram_quantile without le",
	} {
		faults := strings.Join(faultsOf(named{expr: expr}, metrics), "; ")
		if !strings.Contains(faults, fault) {
			t.Errorf("%s: %q, want %q", expr, faults, fault)
		}
	}
	fine := `sum by (x, job) (rate(a_total{x="1"}[5m])) / on () group_left () sum(g) and absent(g)`
	if faults := faultsOf(named{expr: fine, uses: []string{"x", "job"}}, metrics); faults != nil {
		t.Errorf("%s: %v", fine, faults)
	}
}

func check(t *testing.T, queries []named, least int) {
	t.Helper()
	metrics := reference(t)
	if len(queries) < least {
		t.Errorf("only %d queries", len(queries))
	}
	for _, query := range queries {
		for _, fault := range faultsOf(query, metrics) {
			t.Errorf("%s: %s\n%s", query.place, fault, query.expr)
		}
	}
}

func faultsOf(query named, metrics map[string]metric) (faults []string) {
	report := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	// Grafana's variables.
	expr := strings.ReplaceAll(query.expr, "$__rate_interval", "5m")
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	known := slices.Clone(targetLabels)
	parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		found, ok := metrics[selector.Name]
		if !ok {
			report("%s does not exist", selector.Name)
			return nil
		}
		known = append(known, found.labels...)
		for _, matcher := range selector.LabelMatchers {
			name := matcher.Name
			if name != labels.MetricName && !slices.Contains(found.labels, name) && !slices.Contains(targetLabels, name) {
				report("%s has no label %s", selector.Name, name)
			}
		}
		switch function := functionOf(path); {
		case isRate(function) && found.kind == "gauge":
			report("%s of the gauge %s", function, selector.Name)
		case !isRate(function) && found.kind != "gauge" && function != "absent" && !isNewness(path):
			report("the %s %s without rate or increase", found.kind, selector.Name)
		}
		return nil
	})
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.AggregateExpr:
			for _, label := range node.Grouping {
				if !slices.Contains(known, label) {
					report("no metric has the label %s", label)
				}
			}
		case *parser.Call:
			if node.Func.Name == "histogram_quantile" && !strings.Contains(node.Args[1].String(), "by (le") {
				report("histogram_quantile without le")
			}
		}
		return nil
	})
	for _, label := range query.uses {
		if !slices.Contains(known, label) {
			report("no metric has the label %s of its text", label)
		}
	}
	return faults
}

// functionOf is the innermost function that has the selector as its argument.
func functionOf(path []parser.Node) string {
	for _, node := range slices.Backward(path) {
		if call, ok := node.(*parser.Call); ok {
			return call.Func.Name
		}
	}
	return ""
}

// isNewness: x unless x offset 5m.
func isNewness(path []parser.Node) bool {
	return slices.ContainsFunc(path, func(node parser.Node) bool {
		binary, ok := node.(*parser.BinaryExpr)
		return ok && binary.Op == parser.LUNLESS
	})
}

func isRate(function string) bool {
	return function == "rate" || function == "increase"
}

func alertQueries(t *testing.T) (queries []named) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	text, err := os.ReadFile(rulesPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			query := named{place: rule.Alert, expr: rule.Expr}
			for _, text := range rule.Annotations {
				for _, use := range label.FindAllStringSubmatch(text, -1) {
					query.uses = append(query.uses, use[1])
				}
			}
			queries = append(queries, query)
		}
	}
	return queries
}

func dashboardQueries(t *testing.T) (queries []named) {
	t.Helper()
	paths, err := filepath.Glob(dashboards)
	if err != nil || len(paths) < 5 {
		t.Fatalf("%v (%v)", paths, err)
	}
	for _, path := range paths {
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr, LegendFormat string }
			}
			Templating struct {
				List []struct{ Name, Definition string }
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		place := filepath.Base(path)
		variables := map[string]bool{}
		for _, variable := range board.Templating.List {
			variables[variable.Name] = true
			if of, ok := strings.CutPrefix(variable.Definition, "label_values("); ok {
				name, _, _ := strings.Cut(of, ",")
				// A counter would do, too; all of ours are gauges.
				queries = append(queries, named{place: place + ", variable " + variable.Name, expr: name})
			}
		}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				query := named{place: place + ", " + panel.Title, expr: target.Expr}
				for _, use := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
					query.uses = append(query.uses, use[1])
				}
				for _, use := range regexp.MustCompile(`job=~"\$(\w+)"`).FindAllStringSubmatch(target.Expr, -1) {
					if !variables[use[1]] {
						t.Errorf("%s: no variable %s", query.place, use[1])
					}
				}
				queries = append(queries, query)
			}
		}
	}
	return queries
}
