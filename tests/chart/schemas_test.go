package chart

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
)

// kubeconform accepts all examples by the schemas of the kinds, and refuses what the API server refuses or drops.
func TestSchemasJudgeManifests(t *testing.T) {
	schemas := filepath.Join(Dir, "../schemas/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json")
	judge, err := validator.New([]string{schemas}, validator.Opts{Strict: true, IgnoreMissingSchemas: true})
	check(t, err)
	kinds := map[string]int{}
	validate := func(name, text string) (faults []string) {
		for _, result := range judge.Validate(name, io.NopCloser(strings.NewReader(text))) {
			switch result.Status {
			case validator.Invalid, validator.Error:
				faults = append(faults, result.Err.Error())
			case validator.Valid:
				signature, err := result.Resource.Signature()
				check(t, err)
				kinds[signature.Kind]++
			}
		}
		return faults
	}
	examples := filepath.Join(Dir, "../../examples")
	check(t, filepath.WalkDir(examples, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" || strings.HasSuffix(path, "tautline-test.yaml") ||
			entry.Name() == "refused.yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		for _, fault := range validate(path, string(content)) {
			t.Errorf("%s: %s", path, fault)
		}
		return err
	}))
	for _, kind := range []string{"ConstraintPolicy", "ConstraintPolicyOffer", "CostProvider", "MutationPolicy"} {
		if kinds[kind] == 0 {
			t.Errorf("no example has the kind %s", kind)
		}
	}
	const offer = "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\nmetadata: {name: o}\nspec: "
	for spec, fault := range map[string]string{
		"{targets: [{kind: Pod}], policies: [p], providerUnavailable: null}": "",
		"{targets: [{kind: Pod}], policy: [p]}":                              "'policy'",
		"{targets: [{kind: Node}], policies: [p]}":                           "'Pod'",
		"{targets: [{kind: Pod}], policies: [p], evictGroups: 1}":            "boolean",
		"{targets: [{kind: Pod}], policies: [p], group: {minimum: 2}}":       "",
		"{targets: [{kind: Pod}], policies: [p], group: {minimum: 1}}":       "2",
		"{targets: [{kind: Pod, peers: all}], policies: [p], group: {}}":     "'group'",
		"{policies: [p]}": "'targets'",
	} {
		faults := strings.Join(validate("offer.yaml", offer+spec), "\n")
		if (fault == "") != (faults == "") || !strings.Contains(faults, fault) {
			t.Errorf("%s: %q, want %q", spec, faults, fault)
		}
	}
}
