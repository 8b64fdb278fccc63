// Command merge merges apply configurations into objects as the mutating
// admission policies of Kubernetes do. Its arguments are OpenAPI v3 documents.
// One JSON line in, one out, in order:
//
//	{"group": "apps", "version": "v1", "kind": "Deployment",
//	 "live": {...}, "configuration": {...}}
//	{"object": {...}} or {"error": "..."}
//
// Nulls in the configuration are what an expression's nulls are to the server.
// An error that begins with "conversion: " came after the merge: the result is
// no object of the kind's Go type, which the server makes of it.
package main

import (
	"fmt"
	"os"

	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"tautline.io/oracle/internal/admit"
	"tautline.io/oracle/internal/lines"
)

type request struct {
	Group         string         `json:"group"`
	Version       string         `json:"version"`
	Kind          string         `json:"kind"`
	Live          map[string]any `json:"live"`
	Configuration map[string]any `json:"configuration"`
}

type answer map[string]any

func main() {
	schemas, err := admit.ReadSchemas(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "merge:", err)
		os.Exit(1)
	}
	lines.Each(func(r request) any {
		merged, err := merge(schemas, r)
		if err != nil {
			return answer{"error": err.Error()}
		}
		return answer{"object": merged}
	})
}

func merge(schemas admit.Schemas, r request) (map[string]any, error) {
	kind := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	converter := schemas.Of(kind)
	if converter == nil {
		return nil, fmt.Errorf("no schema for %v", kind)
	}
	live := &unstructured.Unstructured{Object: r.Live}
	live.SetGroupVersionKind(kind)
	configuration := &unstructured.Unstructured{Object: nulls(r.Configuration).(map[string]any)}
	configuration.SetGroupVersionKind(kind)
	merged, err := patch.ApplyStructuredMergeDiff(converter, live, configuration)
	if err != nil {
		return nil, err
	}
	if clientscheme.Scheme.Recognizes(kind) {
		if _, err := clientscheme.Scheme.ConvertToVersion(merged, kind.GroupVersion()); err != nil {
			return nil, fmt.Errorf("conversion: %w", err)
		}
	}
	return merged.(*unstructured.Unstructured).Object, nil
}

// With each null as the expressions have it.
func nulls(value any) any {
	switch value := value.(type) {
	case nil:
		return structpb.NullValue_NULL_VALUE
	case map[string]any:
		for name, each := range value {
			value[name] = nulls(each)
		}
	case []any:
		for index, each := range value {
			value[index] = nulls(each)
		}
	}
	return value
}
