// Command cel compiles and runs expressions as the mutating admission policies
// of Kubernetes do. One JSON line in, one out, in order:
//
//	{"expression": "...",
//	 "returns": "any" | "bool" | "configuration" | "jsonpatch",
//	 "patchTypes": true,   // Object{} and JSONPatch{} in "any" and "bool" too
//	 "noParams": true,     // `params` is not declared (as without paramKind)
//	 "variables": [{"name": "...", "expression": "..."}],
//	 "object": {...}, "oldObject": {...}, "params": {...},
//	 "namespaceObject": {...}, "request": {...}, "allow": ["create /pods"]}
//
// Everything but the expression may be left out; "returns" is then "any". Out:
//
//	{"value": ..., "type": "int", "cost": 3}
//	{"error": "..."}
//	{"compileError": "..."}
//
// "type" is the expression's type to the checker. A value that is no JSON (a
// type, an IP, a quantity, an optional) comes as {"opaque": "its text"} in place
// of "value". "any" and "bool" values take the way of a JSONPatch's value, so
// whole numbers beyond 2^53 become strings; "configuration" is what is merged;
// "jsonpatch" is a list of {"op", "path", "from", "value"}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"tautline.io/oracle/internal/admit"
	"tautline.io/oracle/internal/lines"
)

type request struct {
	admit.World
	Expression string `json:"expression"`
	Returns    string `json:"returns"`
	PatchTypes bool   `json:"patchTypes"`
	NoParams   bool   `json:"noParams"`
	Variables  []struct {
		Name       string `json:"name"`
		Expression string `json:"expression"`
	} `json:"variables"`
}

type answer map[string]any

type returning struct {
	expression string
	types      []*celgo.Type
}

func (r returning) GetExpression() string      { return r.expression }
func (r returning) ReturnTypes() []*celgo.Type { return r.types }

func main() { lines.Each(evaluate) }

func accessor(r *request) (plugincel.ExpressionAccessor, error) {
	switch r.Returns {
	case "", "any":
		return returning{r.Expression, []*celgo.Type{celgo.AnyType, celgo.DynType}}, nil
	case "bool":
		return returning{r.Expression, []*celgo.Type{celgo.BoolType}}, nil
	case "configuration":
		return &patch.ApplyConfigurationCondition{Expression: r.Expression}, nil
	case "jsonpatch":
		return &patch.JSONPatchCondition{Expression: r.Expression}, nil
	}
	return nil, fmt.Errorf("returns: %q is none of any, bool, configuration, jsonpatch", r.Returns)
}

func evaluate(r request) any {
	wanted, err := accessor(&r)
	if err != nil {
		return answer{"error": err.Error()}
	}
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 36)))
	if err != nil {
		return answer{"error": err.Error()}
	}
	options := plugincel.OptionalVariableDeclarations{HasParams: !r.NoParams, HasAuthorizer: true}
	for _, each := range r.Variables {
		variable := &mutating.Variable{Name: each.Name, Expression: each.Expression}
		compiled := compiler.CompileAndStoreVariable(variable, options, environment.StoredExpressions)
		if compiled.Error != nil {
			return answer{"compileError": fmt.Sprintf("variables.%s: %v", each.Name, compiled.Error)}
		}
	}
	options.HasPatchTypes = r.PatchTypes || r.Returns == "configuration" || r.Returns == "jsonpatch"
	compiled := compiler.CompileCELExpression(wanted, options, environment.StoredExpressions)
	if compiled.Error != nil {
		return answer{"compileError": compiled.Error.Error()}
	}

	attributes := r.Attributes(admit.Unstructured(r.Object), admit.Unstructured(r.OldObject))
	seen := plugincel.CreateAdmissionRequest(
		attributes.Attributes, r.Request.Resource, metav1.GroupVersionKind(attributes.VersionedKind))
	budget := int64(celconfig.RuntimeCELCostBudget)
	result, left, err := plugincel.NewMutatingEvaluator(compiled).ForInput(
		compiler.CreateContext(context.Background()), attributes, seen, r.Bindings(), r.Namespace, budget)
	if err == nil {
		err = result.Error
	}
	if err != nil {
		return answer{"error": err.Error()}
	}
	said := answer{"type": compiled.OutputType.String(), "cost": budget - left}
	value, err := convert(r.Returns, result.EvalResult)
	if err != nil {
		return answer{"error": err.Error()}
	}
	if text, ok := value.(opaque); ok {
		said["opaque"] = string(text)
	} else {
		said["value"] = value
	}
	return said
}

// The text of a value that is no JSON.
type opaque string

func convert(returns string, value ref.Val) (any, error) {
	switch returns {
	case "configuration":
		object, ok := value.(*dynamic.ObjectVal)
		if !ok {
			return nil, fmt.Errorf("no Object: %v", value.Type())
		}
		if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
		content, ok := object.Value().(map[string]any)
		if !ok {
			return nil, fmt.Errorf("invalid return type: %v", object.Value())
		}
		return content, nil
	case "jsonpatch":
		return operations(value)
	}
	converted, err := plain(value)
	if err != nil {
		return opaque(fmt.Sprint(value.Value())), nil //nolint:nilerr // its text is the answer
	}
	return converted, nil
}

func operations(value ref.Val) (any, error) {
	list, ok := value.(traits.Lister)
	if !ok {
		return nil, errors.New("no list")
	}
	said := []answer{}
	for each := list.Iterator(); each.HasNext() == types.True; {
		native, err := each.Next().ConvertToNative(reflect.TypeOf(&mutation.JSONPatchVal{}))
		if err != nil {
			return nil, err
		}
		operation, ok := native.(*mutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("no JSONPatch: %T", native)
		}
		one := answer{"op": operation.Op, "path": operation.Path}
		if operation.From != "" {
			one["from"] = operation.From
		}
		if operation.Val != nil {
			if object, ok := operation.Val.(*dynamic.ObjectVal); ok {
				if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
					return nil, fmt.Errorf("type mismatch: %w", err)
				}
			}
			if one["value"], err = plain(operation.Val); err != nil {
				return nil, err
			}
		}
		said = append(said, one)
	}
	return said, nil
}

// The way of a JSONPatch's value to JSON.
func plain(value ref.Val) (any, error) {
	native, err := value.ConvertToNative(reflect.TypeOf(&structpb.Value{}))
	if err != nil {
		return nil, err
	}
	bytes, err := json.Marshal(native)
	return json.RawMessage(bytes), err
}
