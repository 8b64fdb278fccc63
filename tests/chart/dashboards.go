package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	columns     = 24
	panelWidth  = 8
	panelHeight = 8
	// The version of Grafana's model of dashboards.
	dashboardSchema = 42
)

// dashboard is a file of deploy/dashboards.
type dashboard struct {
	Title       string
	Description string
	Variables   []variable
	Rows        []row
}

// variable chooses scrape jobs: those that have Metric.
type variable struct {
	Name   string
	Label  string
	Metric string
}

type row struct {
	Title  string
	Panels []panel
}

type panel struct {
	Title       string
	Description string
	Unit        string
	Width       int  // panelWidth
	Stacked     bool // Series on each other.
	Stat        bool // The last value as a number.
	Log         bool // A logarithmic scale.
	Max         *float64
	Queries     []query
}

type query struct {
	Legend string
	Expr   string
}

type fields = map[string]any

var source = fields{"type": "prometheus", "uid": "${datasource}"}

func readDashboard(path string) (*dashboard, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	read := &dashboard{}
	if err := decoder.Decode(read); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if read.Title == "" || read.Description == "" || len(read.Rows) == 0 {
		return nil, fmt.Errorf("%s: needs title, description and rows", path)
	}
	return read, nil
}

// render makes Grafana's JSON, with a line for each panel.
func (d *dashboard) render(uid string) ([]byte, error) {
	var panels []fields
	y := 0
	place := func(x, width, height int, more fields) {
		more["id"] = len(panels) + 1
		more["gridPos"] = fields{"x": x, "y": y, "w": width, "h": height}
		panels = append(panels, more)
	}
	for _, row := range d.Rows {
		place(0, columns, 1, fields{"type": "row", "title": row.Title, "collapsed": false, "panels": []any{}})
		y++
		x := 0
		for _, panel := range row.Panels {
			if panel.Title == "" || panel.Description == "" || panel.Unit == "" || len(panel.Queries) == 0 {
				return nil, fmt.Errorf("%s: %s: %q: needs title, description, unit and queries", d.Title, row.Title, panel.Title)
			}
			width := panel.Width
			if width == 0 {
				width = panelWidth
			}
			if x+width > columns {
				x, y = 0, y+panelHeight
			}
			place(x, width, panelHeight, panel.fields())
			x += width
		}
		y += panelHeight
	}
	lines := make([]string, len(panels))
	for i, panel := range panels {
		text, err := compact(panel)
		if err != nil {
			return nil, err
		}
		lines[i] = text
	}
	head, err := compact(d.head(uid))
	if err != nil {
		return nil, err
	}
	text := strings.TrimSuffix(head, "}") + ",\"panels\":[\n" + strings.Join(lines, ",\n") + "\n]}\n"
	return []byte(text), nil
}

func (d *dashboard) head(uid string) fields {
	variables := []fields{{
		"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
		"current": fields{}, "options": []any{}, "includeAll": false, "multi": false, "regex": "",
	}}
	for _, v := range d.Variables {
		definition := fmt.Sprintf("label_values(%s, job)", v.Metric)
		variables = append(variables, fields{
			"name": v.Name, "label": v.Label, "type": "query", "datasource": source, "definition": definition,
			"query":   fields{"query": definition, "refId": v.Name, "qryType": 1},
			"refresh": 2, "sort": 1, "includeAll": true, "multi": true, "allValue": ".+",
			"current": fields{"text": []string{"All"}, "value": []string{"$__all"}}, "options": []any{},
		})
	}
	return fields{
		"uid": uid, "title": d.Title, "description": d.Description, "tags": []string{"tautline"},
		"links": []fields{{
			"type": "dashboards", "title": "Tautline", "tags": []string{"tautline"}, "asDropdown": true,
			"includeVars": false, "keepTime": true, "targetBlank": false,
		}},
		"annotations": fields{"list": []any{}}, "editable": true, "graphTooltip": 1, "preload": false,
		"refresh": "30s", "schemaVersion": dashboardSchema, "templating": fields{"list": variables},
		"time": fields{"from": "now-6h", "to": "now"}, "timepicker": fields{}, "timezone": "browser",
	}
}

func (p *panel) fields() fields {
	var targets []fields
	for i, query := range p.Queries {
		targets = append(targets, fields{
			"refId": string(rune('A' + i)), "datasource": source, "expr": query.Expr,
			"legendFormat": query.Legend, "editorMode": "code", "range": !p.Stat, "instant": p.Stat,
		})
	}
	defaults := fields{"unit": p.Unit, "min": 0}
	if p.Max != nil {
		defaults["max"] = *p.Max
	}
	kind, options := "timeseries", fields{
		"legend":  fields{"displayMode": "list", "placement": "bottom", "showLegend": true},
		"tooltip": fields{"mode": "multi", "sort": "desc"},
	}
	if p.Stat {
		kind, options = "stat", fields{
			"reduceOptions": fields{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"graphMode":     "none", "colorMode": "none", "textMode": "auto",
		}
	} else {
		stacking, scale := "none", fields{"type": "linear"}
		if p.Stacked {
			stacking = "normal"
		}
		if p.Log {
			scale = fields{"type": "log", "log": 10}
		}
		defaults["custom"] = fields{
			"lineWidth": 1, "fillOpacity": 10, "showPoints": "never",
			"stacking":          fields{"mode": stacking, "group": "A"},
			"scaleDistribution": scale,
		}
	}
	return fields{
		"type": kind, "title": p.Title, "description": p.Description, "datasource": source,
		"fieldConfig": fields{"defaults": defaults, "overrides": []any{}}, "options": options, "targets": targets,
	}
}

func compact(value any) (string, error) {
	text := &bytes.Buffer{}
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSpace(text.String()), nil
}

func generateDashboards(dir string, files map[string][]byte) error {
	paths, err := filepath.Glob(filepath.Join(dir, "../dashboards/*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		read, err := readDashboard(path)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		text, err := read.render("tautline-" + name)
		if err != nil {
			return err
		}
		files["../dashboards/"+name+".json"] = text
		files["files/dashboards/"+name+".json"] = text
	}
	return nil
}
