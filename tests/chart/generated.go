package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	tableStart = "<!-- values: written by `go run ./generate` in tests/chart -->\n"
	tableEnd   = "<!-- /values -->\n"
)

// copies are folders of the chart that are copied from others of deploy.
var copies = map[string]string{
	"crds/*.yaml":     "files/crds",
	"webhooks/*.yaml": "files/webhooks",
}

// generatedOnly matches paths, relative to the chart, of which all are generated.
var generatedOnly = []string{"files/*.*", "files/*/*", "../alerts/*.rules.yaml", "../dashboards/*.json"}

// Generated returns the generated files of the chart in dir, and those that are made of the same sources, by path
// relative to dir.
func Generated(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for pattern, folder := range copies {
		paths, err := filepath.Glob(filepath.Join(dir, "..", pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if filepath.Base(path) == "kustomization.yaml" {
				continue
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			files[filepath.Join(folder, filepath.Base(path))] = content
		}
	}
	values, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		return nil, err
	}
	schema, table, err := Documentation(values)
	if err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	files["values.schema.json"] = schema
	if err := generateAlerts(dir, files); err != nil {
		return nil, err
	}
	if err := generateDashboards(dir, files); err != nil {
		return nil, err
	}
	return files, replace(dir, "README.md", tableStart, tableEnd, table, files)
}

// replace adds the file name with its text between the markers replaced.
func replace(dir, name, start, end, text string, files map[string][]byte) error {
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(content), start)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for its table, between %q and %q", name, start, end)
	}
	files[name] = []byte(before + start + text + end + after)
	return nil
}
