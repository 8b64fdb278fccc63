package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	alertsStart = "<!-- alerts: written by `go run ./generate` in tests/chart -->\n"
	alertsEnd   = "<!-- /alerts -->\n"

	rulesNote = "# Generated from alerts.yaml by `go run ./generate` in tests/chart; do not edit.\n"
)

var severities = []string{"critical", "warning", "info"}

// alert is an entry of deploy/alerts/alerts.yaml.
type alert struct {
	Name     string
	Expr     string
	For      string
	Severity string
	Summary  string
	Fix      string
}

type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func readAlerts(path string) ([]alert, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var alerts []alert
	if err := decoder.Decode(&alerts); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	names := map[string]bool{}
	for _, a := range alerts {
		switch {
		case !strings.HasPrefix(a.Name, "Tautline") || names[a.Name]:
			return nil, fmt.Errorf("%s: %q: name is not a new one of Tautline", path, a.Name)
		case !slices.Contains(severities, a.Severity):
			return nil, fmt.Errorf("%s: %s: severity %q is not one of %q", path, a.Name, a.Severity, severities)
		case a.Expr == "" || !strings.HasSuffix(a.Summary, ".") || !strings.HasSuffix(a.Fix, "."):
			return nil, fmt.Errorf("%s: %s: needs expr, and summary and fix with a full stop", path, a.Name)
		}
		names[a.Name] = true
	}
	return alerts, nil
}

// prometheusRules is the file for Prometheus, and the spec of a PrometheusRule.
func prometheusRules(alerts []alert) ([]byte, error) {
	group := ruleGroup{Name: "tautline"}
	for _, a := range alerts {
		group.Rules = append(group.Rules, rule{
			Alert: a.Name, Expr: a.Expr, For: a.For,
			Labels:      map[string]string{"severity": a.Severity},
			Annotations: map[string]string{"summary": a.Summary, "description": a.Fix},
		})
	}
	text := bytes.NewBufferString(rulesNote)
	encoder := yaml.NewEncoder(text)
	encoder.SetIndent(2)
	if err := encoder.Encode(ruleFile{Groups: []ruleGroup{group}}); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

var templateLabel = regexp.MustCompile(`\{\{ \$(?:labels\.)?(\w+) \}\}`)

// alertTable is the table of the documents.
func alertTable(alerts []alert) string {
	rows := &strings.Builder{}
	rows.WriteString("| alert | severity | condition | meaning | fix |\n|---|---|---|---|---|\n")
	for _, a := range alerts {
		condition := "`" + strings.ReplaceAll(a.Expr, "|", `\|`) + "`"
		if a.For != "" {
			condition += " for " + a.For
		}
		meaning := templateLabel.ReplaceAllString(a.Summary, "`$1`")
		fmt.Fprintf(rows, "| %s | %s | %s | %s | %s |\n",
			a.Name, a.Severity, condition, strings.TrimSuffix(meaning, "."), strings.TrimSuffix(a.Fix, "."))
	}
	return rows.String()
}

func generateAlerts(dir string, files map[string][]byte) error {
	alerts, err := readAlerts(filepath.Join(dir, "../alerts/alerts.yaml"))
	if err != nil {
		return err
	}
	rules, err := prometheusRules(alerts)
	if err != nil {
		return err
	}
	files["../alerts/tautline.rules.yaml"] = rules
	files["files/tautline.rules.yaml"] = rules
	return replace(dir, "../../docs/troubleshooting.md", alertsStart, alertsEnd, alertTable(alerts), files)
}
