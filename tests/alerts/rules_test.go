package alerts

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

// Of scrapes and evaluations.
const interval = time.Minute

// example is a case of an alert in cases.yaml: series with their values, a minute apart, in promtool's notation.
type example struct {
	Series map[string]string
	// Times at which the alert does not fire, and at which it fires with Labels.
	Silent, Fires []time.Duration
	Labels        map[string]string
}

func TestAlertsFireWhenTheyMust(t *testing.T) {
	text, err := os.ReadFile("cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string][]example
	if err := yaml.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	var alerts []string
	for _, query := range alertQueries(t) {
		alerts = append(alerts, query.place)
	}
	for _, alert := range slices.Sorted(maps.Keys(cases)) {
		if !slices.Contains(alerts, alert) {
			t.Errorf("cases.yaml: there is no alert %s", alert)
		}
	}
	for _, alert := range alerts {
		t.Run(alert, func(t *testing.T) {
			t.Parallel()
			fires, silent := false, false
			for _, example := range cases[alert] {
				fires, silent = fires || len(example.Fires) > 0, silent || len(example.Silent) > 0
				example.run(t, alert)
			}
			if !fires || !silent {
				t.Errorf("cases.yaml has no case in which it fires, or none in which it is silent")
			}
		})
	}
}

func (e example) run(t *testing.T, alert string) {
	t.Helper()
	load := &strings.Builder{}
	fmt.Fprintf(load, "load %s\n", interval)
	for series, values := range e.Series {
		fmt.Fprintf(load, "  %s %s\n", series, values)
	}
	loader, err := promqltest.NewLazyLoader(load.String(), promqltest.LazyLoaderOpts{
		EnableAtModifier: true, EnableNegativeOffset: true,
	})
	if err != nil {
		t.Fatalf("%v in\n%s", err, load)
	}
	defer loader.Close()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(loader.QueryEngine(), loader.Queryable()),
		Appendable: loader.Storage(),
		Queryable:  loader.Queryable(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Context:    t.Context(),
		Parser:     parser.NewParser(parser.Options{}),
	})
	groups, faults := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, rulesPath)
	if faults != nil {
		t.Fatal(faults)
	}
	last := slices.Max(append(slices.Clone(e.Silent), e.Fires...))
	for at := time.Duration(0); at <= last; at += interval {
		now := time.Unix(0, 0).UTC().Add(at)
		loader.WithSamplesTill(now, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range groups {
				group.Eval(t.Context(), now)
			}
		})
		firing := firing(t, groups, alert)
		if slices.Contains(e.Silent, at) && firing != nil {
			t.Errorf("fires after %s: %v\n%s", at, firing, load)
		}
		if slices.Contains(e.Fires, at) {
			want := maps.Clone(e.Labels)
			if want == nil {
				want = map[string]string{}
			}
			if len(firing) != 1 || !maps.Equal(firing[0], want) {
				t.Errorf("after %s fires %v, want %v\n%s", at, firing, want, load)
			}
		}
	}
}

// firing returns the labels of the alert's firing instances, but for its name and severity.
func firing(t *testing.T, groups map[string]*rules.Group, alert string) (all []map[string]string) {
	t.Helper()
	for _, group := range groups {
		for _, rule := range group.AlertingRules() {
			if rule.LastError() != nil {
				t.Fatalf("%s: %v", rule.Name(), rule.LastError())
			}
			if rule.Name() != alert {
				continue
			}
			for _, active := range rule.ActiveAlerts() {
				if active.State != rules.StateFiring {
					continue
				}
				found := active.Labels.Map()
				delete(found, "alertname")
				delete(found, "severity")
				all = append(all, found)
				for name, text := range active.Annotations.Map() {
					if text == "" || strings.Contains(text, "{{") || strings.Contains(text, "<") {
						t.Errorf("%s: annotation %s is %q", alert, name, text)
					}
				}
			}
		}
	}
	return all
}
