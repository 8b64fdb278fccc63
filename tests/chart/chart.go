// Package chart renders deploy/chart as `helm template` does.
package chart

import (
	"fmt"
	"path"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
)

// Dir is the chart's folder, seen from this one.
const Dir = "../../deploy/chart"

// Release names an installation; empty fields have defaults.
type Release struct {
	Dir         string // Dir
	Name        string // tautline
	Namespace   string // tautline-system
	KubeVersion string // helm's own
	Values      map[string]any
}

// Rendered has the manifests in the order in which helm installs them.
type Rendered struct {
	Manifests []string
	Notes     string
}

// Render validates the values by the schema and renders all templates.
func (r Release) Render() (*Rendered, error) {
	chart, err := loader.LoadDir(or(r.Dir, Dir))
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	if r.KubeVersion != "" {
		version, err := common.ParseKubeVersion(r.KubeVersion)
		if err != nil {
			return nil, fmt.Errorf("Kubernetes version %q: %w", r.KubeVersion, err)
		}
		capabilities.KubeVersion = *version
	}
	options := common.ReleaseOptions{
		Name:      or(r.Name, "tautline"),
		Namespace: or(r.Namespace, "tautline-system"),
		Revision:  1,
		IsInstall: true,
	}
	values, err := util.ToRenderValues(chart, r.Values, options, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		return nil, err
	}
	rendered := &Rendered{}
	for name, text := range files {
		if path.Base(name) == "NOTES.txt" {
			rendered.Notes = text
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	if len(hooks) > 0 {
		return nil, fmt.Errorf("%s is a hook; the chart has none", hooks[0].Path)
	}
	for _, manifest := range manifests {
		rendered.Manifests = append(rendered.Manifests, strings.TrimSpace(manifest.Content)+"\n")
	}
	return rendered, nil
}

func or(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
