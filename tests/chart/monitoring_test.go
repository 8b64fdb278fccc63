package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAlertsAreChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alerts.yaml")
	for text, fault := range map[string]string{
		"- {name: Down, expr: up, severity: info, summary: A., fix: B.}":                  `"Down": name is not a new one of Tautline`,
		"- {name: TautlineDown, expr: up, severity: high, summary: A., fix: B.}":          `severity "high" is not one of`,
		"- {name: TautlineDown, expr: up, severity: info, summary: A}":                    "needs expr, and summary and fix",
		"- {name: TautlineDown, expr: up, severity: info, summary: A., mend: B.}":         "field mend not found",
		"- &a {name: TautlineDown, expr: up, severity: info, summary: A., fix: B.}\n- *a": `"TautlineDown": name is not a new one`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readAlerts(path); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v\nwant %s", text, err, fault)
		}
	}
}

func TestAlertTableEscapesCells(t *testing.T) {
	table := alertTable([]alert{{
		Name: "TautlineDown", Severity: "info", Expr: `a{b=~"c|d"} > 0`, For: "5m",
		Summary: "Rule {{ $labels.rule }} has {{ $value }}.", Fix: "Wait.",
	}})
	row := "| TautlineDown | info | `a{b=~\"c\\|d\"} > 0` for 5m | Rule `rule` has `value` | Wait |\n"
	if !strings.HasSuffix(table, row) {
		t.Errorf("%s\nwant %s", table, row)
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(Dir, "../dashboards/*.json"))
	if err != nil || len(paths) < 5 {
		t.Fatalf("%v (%v)", paths, err)
	}
	uids := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			UID    string
			Panels []struct {
				ID      int
				Title   string
				GridPos struct{ X, Y, W, H int }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if uids[board.UID] || board.UID == "" {
			t.Errorf("%s: uid %q", path, board.UID)
		}
		uids[board.UID] = true
		ids, cells := map[int]bool{}, map[string]string{}
		for _, panel := range board.Panels {
			if ids[panel.ID] {
				t.Errorf("%s: %s has the id of another panel", path, panel.Title)
			}
			ids[panel.ID] = true
			at := panel.GridPos
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					cell := fmt.Sprint(x, " ", y)
					if x >= columns || cells[cell] != "" {
						t.Fatalf("%s: %s and %s overlap", path, panel.Title, cells[cell])
					}
					cells[cell] = panel.Title
				}
			}
		}
	}
}
