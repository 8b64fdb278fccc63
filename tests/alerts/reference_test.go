// Package alerts tests the alerts of deploy/alerts, and the queries of the dashboards of deploy/dashboards.
package alerts

import (
	"os"
	"strings"
	"testing"
)

const (
	referencePath = "../../docs/reference/metrics.md"
	rulesPath     = "../../deploy/alerts/tautline.rules.yaml"
	dashboards    = "../../deploy/dashboards/*.json"
)

// metric is a series name with the kind and the labels of its family.
type metric struct {
	kind   string
	labels []string
}

// reference returns the metrics that the processes have, by the names of their series.
func reference(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string]metric{}
	for line := range strings.SplitSeq(string(text), "\n") {
		// | `name` | kind | unit | `label`, `label` | meaning |
		cells := strings.Split(line, "|")
		if len(cells) < 7 || !strings.HasPrefix(line, "| `") {
			continue
		}
		name, found := strings.Trim(cells[1], " `"), metric{kind: strings.TrimSpace(cells[2])}
		for label := range strings.SplitSeq(cells[4], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				found.labels = append(found.labels, label)
			}
		}
		if found.kind != "histogram" {
			metrics[name] = found
			continue
		}
		metrics[name+"_sum"], metrics[name+"_count"] = found, found
		metrics[name+"_bucket"] = metric{kind: found.kind, labels: append([]string{"le"}, found.labels...)}
	}
	if len(metrics) < 100 {
		t.Fatalf("%s has only %d metrics", referencePath, len(metrics))
	}
	return metrics
}
