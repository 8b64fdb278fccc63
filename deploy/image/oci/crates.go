package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// A crate as `cargo metadata` describes it.
type crate struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Version      string   `json:"version"`
	Description  string   `json:"description"`
	License      string   `json:"license"`
	Authors      []string `json:"authors"`
	Repository   string   `json:"repository"`
	Source       string   `json:"source"` // empty in the workspace
	ManifestPath string   `json:"manifest_path"`

	dependencies []string // IDs
}

func (c *crate) purl() string { return "pkg:cargo/" + c.Name + "@" + c.Version }

func (c *crate) foreign() bool { return c.Source != "" }

// The crates in the binaries of these packages, by name and version. Build dependencies and
// procedural macros are not among them.
func linkedCrates(root, triple string, packages ...string) ([]*crate, error) {
	args := []string{"tree", "--locked", "--target", triple,
		"--edges", "normal,no-proc-macro", "--prefix", "none", "--no-dedupe", "--format", "{p}"}
	for _, name := range packages {
		args = append(args, "--package", name)
	}
	tree, err := cargo(root, args...)
	if err != nil {
		return nil, err
	}
	metadata, err := cargo(root, "metadata", "--locked", "--format-version", "1", "--filter-platform", triple)
	if err != nil {
		return nil, err
	}
	return selectCrates(tree, metadata)
}

func cargo(root string, args ...string) ([]byte, error) {
	command := exec.Command("cargo", args...)
	command.Dir = root
	out, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("cargo %s: %w: %s", args[0], err, exit.Stderr)
	}
	return out, err
}

func selectCrates(tree, metadata []byte) ([]*crate, error) {
	linked := map[string]bool{}
	for line := range strings.Lines(string(tree)) {
		// NAME vVERSION, then the source where it is not the registry.
		if fields := strings.Fields(line); len(fields) >= 2 {
			linked[fields[0]+"@"+strings.TrimPrefix(fields[1], "v")] = true
		}
	}
	var workspace struct {
		Packages []*crate
		Resolve  struct {
			Nodes []struct {
				ID           string
				Dependencies []string
			}
		}
	}
	if err := json.NewDecoder(bytes.NewReader(metadata)).Decode(&workspace); err != nil {
		return nil, fmt.Errorf("cargo metadata: %w", err)
	}
	var crates []*crate
	byID := map[string]*crate{}
	for _, c := range workspace.Packages {
		if linked[c.Name+"@"+c.Version] {
			crates = append(crates, c)
			byID[c.ID] = c
			delete(linked, c.Name+"@"+c.Version)
		}
	}
	for missing := range linked {
		return nil, fmt.Errorf("cargo metadata does not describe %s", missing)
	}
	for _, node := range workspace.Resolve.Nodes {
		if c := byID[node.ID]; c != nil {
			c.dependencies = slices.DeleteFunc(node.Dependencies, func(id string) bool { return byID[id] == nil })
		}
	}
	slices.SortFunc(crates, func(a, b *crate) int {
		return strings.Compare(a.Name+"@"+a.Version, b.Name+"@"+b.Version)
	})
	return crates, nil
}

// The crate of the executable.
func application(crates []*crate) (*crate, error) {
	for _, c := range crates {
		if c.Name == "tautline" && !c.foreign() {
			return c, nil
		}
	}
	return nil, errors.New("no crate tautline in the workspace")
}
