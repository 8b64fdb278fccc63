// Writes the generated files of deploy/chart: the copies of deploy/crds and deploy/webhooks, values.schema.json,
// and the table of values in README.md. Of deploy/alerts and deploy/dashboards also Prometheus' rules, Grafana's
// JSON and the documents' table of alerts.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	chart "tautline.io/chart-tests"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run() error {
	files, err := chart.Generated(chart.Dir)
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(chart.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
