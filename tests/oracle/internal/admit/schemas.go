package admit

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"
)

// Schemas are type converters, made as the API server makes them.
type Schemas []managedfields.TypeConverter

// ReadSchemas reads OpenAPI v3 documents.
func ReadSchemas(paths []string) (Schemas, error) {
	var read Schemas
	for _, path := range paths {
		bytes, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var document spec3.OpenAPI
		if err := json.Unmarshal(bytes, &document); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if document.Components == nil {
			return nil, fmt.Errorf("%s: no components", path)
		}
		converter, err := managedfields.NewTypeConverter(document.Components.Schemas, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		read = append(read, converter)
	}
	return read, nil
}

// Of is the converter that knows the kind, or nil.
func (s Schemas) Of(kind schema.GroupVersionKind) managedfields.TypeConverter {
	stub := &unstructured.Unstructured{}
	stub.SetGroupVersionKind(kind)
	for _, converter := range s {
		if _, err := converter.ObjectToTyped(stub); err == nil {
			return converter
		}
	}
	return nil
}
