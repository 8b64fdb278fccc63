package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// The page's health checks, run as Argo CD runs them, and kstatus agree with the conditions that the documentation
// of the controller lists.
func TestHealthFollowsConditions(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(Dir, "../../docs/howto/argo-cd.md"))
	check(t, err)
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	snippet, _, _ := strings.Cut(rest, "```")
	checks := values(t, snippet)["data"].(map[string]any)

	offer := func(observed int, ready, reason string) map[string]any {
		return document(t, fmt.Sprintf(`
kind: ConstraintPolicyOffer
metadata: {generation: 2}
status:
  observedGeneration: %d
  bindingCount: 3
  compliantBindingCount: 2
  conditions: [{type: Ready, status: "%s", reason: %s, message: text}]`, observed, ready, reason))
	}
	binding := func(compliance, ready string) map[string]any {
		return document(t, fmt.Sprintf(`
kind: ConstraintPolicyBinding
metadata: {generation: 1}
status:
  compliance: %s
  firstReason: 31ms to north-1 > 20ms
  conditions: [{type: Ready, status: "%s", reason: Evaluated, message: ""}]`, compliance, ready))
	}
	type want struct {
		object                 map[string]any
		argo, kstatus, message string
	}
	cases := []want{
		{document(t, "kind: ConstraintPolicyOffer\nmetadata: {generation: 1}"), "Progressing", "Current", "has not read"},
		{offer(1, "True", "InStep"), "Progressing", "InProgress", "has not read"},
		{offer(1, "False", "Invalid"), "Degraded", "InProgress", "Invalid: text"},
		{offer(2, "True", "InStep"), "Healthy", "Current", "2 of 3 bindings are compliant"},
		{document(t, "kind: ConstraintPolicyBinding\nmetadata: {generation: 1}"), "Progressing", "Current", "not evaluated"},
	}
	for _, reason := range reasonsOfReady(t) {
		expected := want{offer(2, reason[0], reason[1]), "Degraded", "InProgress", reason[1] + ": text"}
		switch {
		case reason[0] == "True":
			expected = want{expected.object, "Healthy", "Current", ""}
		case reason[1] == "InProgress":
			expected.argo = "Progressing"
		}
		cases = append(cases, expected)
	}
	crd := values(t, chartFile(t, "../crds/constraintpolicybindings.yaml"))
	version := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	states, _, err := unstructured.NestedStringSlice(version,
		"schema", "openAPIV3Schema", "properties", "status", "properties", "compliance", "enum")
	check(t, err)
	healths := map[string]string{"Pending": "Progressing", "Violation": "Degraded", "Error": "Degraded"}
	for _, state := range states {
		health, ready, kstatus := healths[state], "True", "Current"
		if health == "" {
			health = "Healthy"
		}
		if state == "Error" {
			ready, kstatus = "False", "InProgress"
		}
		cases = append(cases, want{binding(state, ready), health, kstatus, state + ": 31ms"})
	}
	if len(cases) < 5+11+5 {
		t.Errorf("only %d cases", len(cases))
	}
	for _, expected := range cases {
		kind := expected.object["kind"].(string)
		code, _ := checks["resource.customizations.health.constraint.ciena.com_"+kind].(string)
		health, message := runHealthCheck(t, code, expected.object)
		if health != expected.argo || !strings.Contains(message, expected.message) {
			t.Errorf("%v: %s, %q in Argo CD, want %+v", expected.object, health, message, expected)
		}
		result, err := status.Compute(&unstructured.Unstructured{Object: expected.object})
		check(t, err)
		if result.Status.String() != expected.kstatus {
			t.Errorf("%v: %s by kstatus, want %s", expected.object, result.Status, expected.kstatus)
		}
	}
}

// document reads whole numbers as the API machinery does.
func document(t *testing.T, text string) map[string]any {
	t.Helper()
	converted, err := yaml.YAMLToJSON([]byte(text))
	check(t, err)
	read := map[string]any{}
	check(t, json.Unmarshal(converted, &read))
	return read
}

// reasonsOfReady are the statuses and reasons of an offer's condition Ready, by the documentation's table.
func reasonsOfReady(t *testing.T) (reasons [][2]string) {
	row := regexp.MustCompile("(?m)^\\| (True|False) \\| `(\\w+)` \\|")
	for _, match := range row.FindAllStringSubmatch(chartFile(t, "../../docs/controller.md"), -1) {
		reasons = append(reasons, [2]string{match[1], match[2]})
	}
	return reasons
}

// runHealthCheck returns the status and the message that a health check of Argo CD returns.
func runHealthCheck(t *testing.T, code string, object map[string]any) (string, string) {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	// The libraries that Argo CD opens.
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		check(t, state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)))
	}
	state.SetGlobal("obj", luaValue(state, object))
	if err := state.DoString(code); err != nil {
		t.Fatalf("%v in\n%s", err, code)
	}
	health, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("no table is returned by\n%s", code)
	}
	return health.RawGetString("status").String(), health.RawGetString("message").String()
}

func luaValue(state *lua.LState, value any) lua.LValue {
	table := state.NewTable()
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			table.RawSetString(name, luaValue(state, field))
		}
	case []any:
		for _, element := range value {
			table.Append(luaValue(state, element))
		}
	case string:
		return lua.LString(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	case bool:
		return lua.LBool(value)
	default:
		return lua.LNil
	}
	return table
}

// chartFile returns a file by its path relative to the chart.
func chartFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(Dir, path))
	check(t, err)
	return string(content)
}
