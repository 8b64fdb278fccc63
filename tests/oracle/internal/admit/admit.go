// Package admit reads what a request's expressions see: the objects, the
// request, the namespace, the params and whom the authorizer lets do what.
package admit

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// World is the part of a line that all programs share. An object that is
// absent is null to the expressions.
type World struct {
	Object    map[string]any    `json:"object"`
	OldObject map[string]any    `json:"oldObject"`
	Params    map[string]any    `json:"params"`
	Namespace *corev1.Namespace `json:"namespaceObject"`
	Request   Request           `json:"request"`
	// Allow lists what the authorizer allows: "VERB GROUP/RESOURCE" (the core
	// group is empty: "create /endpoints"), or "VERB PATH" for other requests.
	Allow []string `json:"allow"`
}

// Request is what `request` is made of. An empty kind is the object's own.
type Request struct {
	Kind        metav1.GroupVersionKind     `json:"kind"`
	Resource    metav1.GroupVersionResource `json:"resource"`
	SubResource string                      `json:"subResource"`
	Name        string                      `json:"name"`
	Namespace   string                      `json:"namespace"`
	Operation   string                      `json:"operation"`
	DryRun      bool                        `json:"dryRun"`
	UserInfo    struct {
		Username string              `json:"username"`
		UID      string              `json:"uid"`
		Groups   []string            `json:"groups"`
		Extra    map[string][]string `json:"extra"`
	} `json:"userInfo"`
}

// Unstructured is nil for an absent object.
func Unstructured(object map[string]any) runtime.Object {
	if object == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: object}
}

// Attributes are the request's, with these objects (nil where absent).
func (w *World) Attributes(object, old runtime.Object) *admission.VersionedAttributes {
	r := &w.Request
	kind := schema.GroupVersionKind(r.Kind)
	if kind.Empty() && object != nil {
		kind = object.GetObjectKind().GroupVersionKind()
	}
	operation := admission.Operation(r.Operation)
	if operation == "" {
		operation = admission.Create
	}
	by := &user.DefaultInfo{
		Name: r.UserInfo.Username, UID: r.UserInfo.UID, Groups: r.UserInfo.Groups, Extra: r.UserInfo.Extra,
	}
	resource := schema.GroupVersionResource(r.Resource)
	attributes := admission.NewAttributesRecord(
		object, old, kind, r.Namespace, r.Name, resource, r.SubResource, operation, nil, r.DryRun, by)
	return &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: kind, VersionedObject: object, VersionedOldObject: old,
	}
}

// Bindings are the params and the authorizer.
func (w *World) Bindings() plugincel.OptionalVariableBindings {
	return plugincel.OptionalVariableBindings{
		VersionedParams: Unstructured(w.Params),
		Authorizer:      allowing(w.Allow),
	}
}

type allowing []string

func (a allowing) Authorize(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	name := asked.GetVerb() + " " + asked.GetPath()
	if asked.IsResourceRequest() {
		name = fmt.Sprintf("%s %s/%s", asked.GetVerb(), asked.GetAPIGroup(), asked.GetResource())
	}
	for _, allowed := range a {
		if strings.EqualFold(allowed, name) {
			return authorizer.DecisionAllow, "listed", nil
		}
	}
	return authorizer.DecisionNoOpinion, "not listed", nil
}
