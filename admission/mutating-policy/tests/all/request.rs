//! The types of `request` and `namespaceObject` against Kubernetes' own code.

#[test]
fn request_fields_have_the_types_of_kubernetes() {
    crate::kubernetes_cases::check(
        "tests/expressions/request.json",
        tautline_mutating_policy::environment,
    );
}
