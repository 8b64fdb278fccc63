package chart

import (
	"bytes"
	"fmt"
	"sort"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// objects are manifests by "Kind/namespace/name".
type objects map[string]*unstructured.Unstructured

func parse(t *testing.T, manifests []string) objects {
	t.Helper()
	all := objects{}
	for _, text := range manifests {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &object.Object); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if len(object.Object) == 0 {
			continue
		}
		key := key(object)
		if all[key] != nil {
			t.Fatalf("%s is there twice", key)
		}
		all[key] = object
	}
	return all
}

func key(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s/%s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	read := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &read); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return read
}

func render(t *testing.T, release Release, text string) (objects, *Rendered) {
	t.Helper()
	release.Values = values(t, text)
	rendered, err := release.Render()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, rendered.Manifests), rendered
}

// at evaluates a path as `kubectl -o jsonpath` does; "KIND/NAME PATH" names the object first.
// Results are joined by spaces; a missing object or field is "".
func (all objects) at(t *testing.T, reference string) string {
	t.Helper()
	target, path, _ := strings.Cut(reference, " ")
	kind, name, _ := strings.Cut(target, "/")
	for _, object := range all {
		if object.GetKind() != kind || object.GetName() != name {
			continue
		}
		if path == "" {
			return name
		}
		query := jsonpath.New(reference).AllowMissingKeys(true)
		if err := query.Parse("{" + path + "}"); err != nil {
			t.Fatalf("%s: %v", reference, err)
		}
		text := &bytes.Buffer{}
		err := query.Execute(text, object.Object)
		if err != nil && strings.Contains(err.Error(), "out of bounds") {
			return ""
		}
		if err != nil {
			t.Fatalf("%s: %v", reference, err)
		}
		return text.String()
	}
	return ""
}

func (all objects) keys() []string {
	keys := make([]string, 0, len(all))
	for key := range all {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
