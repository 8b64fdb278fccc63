// Package typed makes Go values of objects, with the defaults of their kinds.
package typed

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	// Their types and defaults.
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
)

// Object is the object as the API server has it: of its Go type, with defaults,
// where there is such a type and `plain` does not ask for none.
func Object(object map[string]any, plain bool) (runtime.Object, admission.ObjectInterfaces, error) {
	if object == nil {
		return nil, free{legacy()}, nil
	}
	content := &unstructured.Unstructured{Object: object}
	if plain || !legacyscheme.Scheme.Recognizes(content.GroupVersionKind()) {
		return content, free{legacy()}, nil
	}
	typed, err := legacyscheme.Scheme.New(content.GroupVersionKind())
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, typed, true)
	}
	if err != nil {
		return nil, nil, err
	}
	legacyscheme.Scheme.Default(typed)
	return typed, legacy(), nil
}

func legacy() admission.ObjectInterfaces {
	return admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
}

// As for custom resources, but without defaults.
type free struct{ admission.ObjectInterfaces }

func (free) GetObjectCreater() runtime.ObjectCreater {
	return unstructuredscheme.NewUnstructuredCreator()
}
func (free) GetObjectTyper() runtime.ObjectTyper {
	return unstructuredscheme.NewUnstructuredObjectTyper()
}
func (free) GetObjectDefaulter() runtime.ObjectDefaulter { return none{} }

type none struct{}

func (none) Default(runtime.Object) {}

// ConvertedTo the kind's Go type, where the object was of one.
func ConvertedTo(kind schema.GroupVersionKind, was, is runtime.Object) (runtime.Object, error) {
	if _, plain := was.(*unstructured.Unstructured); plain {
		return is, nil
	}
	return legacyscheme.Scheme.ConvertToVersion(is, kind.GroupVersion())
}
