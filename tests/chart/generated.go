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
	"crds/*.yaml":       "files/crds",
	"webhooks/*.yaml":   "files/webhooks",
	"dashboards/*.json": "files/dashboards",
}

// Generated returns the generated files of the chart in dir, by path.
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
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return nil, err
	}
	before, rest, start := strings.Cut(string(readme), tableStart)
	_, after, end := strings.Cut(rest, tableEnd)
	if !start || !end {
		return nil, fmt.Errorf("README.md has no place for the table of values, between %q and %q", tableStart, tableEnd)
	}
	files["README.md"] = []byte(before + tableStart + table + tableEnd + after)
	return files, nil
}
