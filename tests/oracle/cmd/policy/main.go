// Command policy runs mutating admission policies as Kubernetes does, each once,
// with one param or none. Its arguments are OpenAPI v3 documents. One JSON line
// in, one out, in order:
//
//	{"policy": {...},      // admissionregistration.k8s.io/v1; none: no mutation
//	 "plain": true,        // as a custom resource: no Go type, no defaults
//	 "object": {...}, "oldObject": {...}, "params": {...},
//	 "namespaceObject": {...}, "request": {...}, "allow": ["create /pods"]}
//
//	{"object": {...}, "matched": true, "errors": ["..."]}
//	{"denied": "..."}      // whatever the failurePolicy
//	{"error": "..."}       // the line is no use
//
// "errors" are those that the failurePolicy decides on: after one the server
// goes on with the next mutation. Matching by rules and selectors is not done,
// nor are policies run again.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"tautline.io/oracle/internal/admit"
	"tautline.io/oracle/internal/lines"
	"tautline.io/oracle/internal/typed"
)

type request struct {
	admit.World
	Policy *admissionregistration.MutatingAdmissionPolicy `json:"policy"`
	Plain  bool                                           `json:"plain"`
}

type answer map[string]any

func main() {
	schemas, err := admit.ReadSchemas(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "policy:", err)
		os.Exit(1)
	}
	lines.Each(func(r request) any {
		said, err := invoke(schemas, &r)
		var denied *apierrors.StatusError
		if errors.As(err, &denied) {
			return answer{"denied": err.Error()}
		}
		if err != nil {
			return answer{"error": err.Error()}
		}
		return said
	})
}

type compiled struct {
	compiler *plugincel.CompositedCompiler
	matcher  matchconditions.Matcher
	patchers []patch.Patcher
}

func compile(policy *admissionregistration.MutatingAdmissionPolicy) (*compiled, error) {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 36)))
	if err != nil {
		return nil, err
	}
	options := plugincel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	for _, each := range policy.Spec.Variables {
		variable := &mutating.Variable{Name: each.Name, Expression: each.Expression}
		compiler.CompileAndStoreVariable(variable, options, environment.StoredExpressions)
	}
	made := &compiled{compiler: compiler}
	if conditions := policy.Spec.MatchConditions; len(conditions) > 0 {
		accessors := make([]plugincel.ExpressionAccessor, len(conditions))
		for i := range conditions {
			accessors[i] = (*matchconditions.MatchCondition)(&conditions[i])
		}
		evaluator := compiler.CompileCondition(accessors, options, environment.StoredExpressions)
		made.matcher = matchconditions.NewMatcher(
			evaluator, policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	}
	options.HasPatchTypes = true
	for _, each := range policy.Spec.Mutations {
		switch {
		case each.JSONPatch != nil:
			accessor := &patch.JSONPatchCondition{Expression: each.JSONPatch.Expression}
			made.patchers = append(made.patchers, patch.NewJSONPatcher(
				compiler.CompileMutatingEvaluator(accessor, options, environment.StoredExpressions)))
		case each.ApplyConfiguration != nil:
			accessor := &patch.ApplyConfigurationCondition{Expression: each.ApplyConfiguration.Expression}
			made.patchers = append(made.patchers, patch.NewApplyConfigurationPatcher(
				compiler.CompileMutatingEvaluator(accessor, options, environment.StoredExpressions)))
		default:
			return nil, errors.New("a mutation has neither jsonPatch nor applyConfiguration")
		}
	}
	return made, nil
}

func invoke(schemas admit.Schemas, r *request) (any, error) {
	object, interfaces, err := typed.Object(r.Object, r.Plain)
	if err != nil {
		return nil, fmt.Errorf("object: %w", err)
	}
	old, _, err := typed.Object(r.OldObject, r.Plain)
	if err != nil {
		return nil, fmt.Errorf("oldObject: %w", err)
	}
	attributes := r.Attributes(object, old)
	said := answer{"matched": true}
	failed := []string{}
	if r.Policy != nil && object != nil {
		policy, err := compile(r.Policy)
		if err != nil {
			return nil, err
		}
		ctx := policy.compiler.CreateContext(context.Background())
		bindings := r.Bindings()
		if policy.matcher != nil {
			result := policy.matcher.Match(ctx, attributes, bindings.VersionedParams, bindings.Authorizer)
			if result.Error != nil {
				failed = append(failed, result.Error.Error())
			}
			if result.Error != nil || !result.Matches {
				said["matched"] = false
				policy.patchers = nil
			}
		}
		for _, patcher := range policy.patchers {
			if err := mutate(ctx, schemas, r, patcher, interfaces, attributes, bindings); err != nil {
				var denied *apierrors.StatusError
				if errors.As(err, &denied) {
					return nil, err
				}
				failed = append(failed, err.Error())
			}
		}
	}
	said["errors"] = failed
	if attributes.VersionedObject != nil {
		said["object"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(attributes.VersionedObject)
	}
	return said, err
}

func mutate(
	ctx context.Context, schemas admit.Schemas, r *request, patcher patch.Patcher,
	interfaces admission.ObjectInterfaces, attributes *admission.VersionedAttributes,
	bindings plugincel.OptionalVariableBindings,
) error {
	converter := schemas.Of(attributes.VersionedKind)
	if converter == nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("no schema for %v", attributes.VersionedKind))
	}
	patched, err := patcher.Patch(ctx, patch.Request{
		MatchedResource:     schema.GroupVersionResource(r.Request.Resource),
		VersionedAttributes: attributes,
		ObjectInterfaces:    interfaces,
		OptionalVariables:   bindings,
		Namespace:           r.Namespace,
		TypeConverter:       converter,
	}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return err
	}
	patched, err = typed.ConvertedTo(attributes.VersionedKind, attributes.VersionedObject, patched)
	if err != nil {
		return err
	}
	interfaces.GetObjectDefaulter().Default(patched)
	attributes.Dirty = true
	attributes.VersionedObject = patched
	return nil
}
