//! Parses policies in the current layout or the layout of 2024.

use super::{
    ExpressionSource, FailurePolicy, Mutation, NamedExpression, ParamKind, PatchType, Policy,
    Reinvocation, resources,
};
use crate::manifest::{FieldRef, Findings, is_identifier, is_qualified};

/// The most matchConditions of a policy, as in the API server.
const MAX_CONDITIONS: usize = 64;
/// The most variables of a policy. The API server has no limit.
const MAX_VARIABLES: usize = 256;

const REINVOCATION: [(&str, Reinvocation); 2] = [
    ("Never", Reinvocation::Never),
    ("IfNeeded", Reinvocation::IfNeeded),
];

pub(super) fn read(name: &str, spec: &FieldRef<'_>, found: &mut Findings) -> Option<Policy> {
    const FIELDS: [&str; 7] = [
        "failurePolicy",
        "matchConditions",
        "matchConstraints",
        "mutations",
        "paramKind",
        "reinvocationPolicy",
        "variables",
    ];
    spec.object(&FIELDS, found)?;
    let failures = [
        ("Fail", FailurePolicy::Fail),
        ("Ignore", FailurePolicy::Ignore),
    ];
    let constraints = spec.field("matchConstraints");
    let constraints = constraints.map(|c| resources::read(&c, found));
    match &constraints {
        None => found.fault("spec.matchConstraints", "is required"),
        Some(c) if c.rules.is_empty() => {
            found.fault("spec.matchConstraints.resourceRules", "is required");
        }
        Some(_) => {}
    }
    let conditions = named(spec, "matchConditions", is_qualified, MAX_CONDITIONS, found);
    let items = spec.items("mutations", found);
    if items.is_empty() {
        found.fault("spec.mutations", "must hold at least one mutation");
    }
    let mutations = items.iter().filter_map(|m| mutation(m, found)).collect();
    Some(Policy {
        name: name.to_owned(),
        constraints: constraints?,
        conditions,
        variables: named(spec, "variables", is_identifier, MAX_VARIABLES, found),
        mutations,
        failure: spec
            .choice("failurePolicy", &failures, found)
            .unwrap_or(FailurePolicy::Fail),
        reinvocation: reinvocation(spec, &items, found)?,
        param_kind: match spec.field("paramKind") {
            None => None,
            Some(place) => Some(param_kind(&place, found)?),
        },
    })
}

fn param_kind(place: &FieldRef<'_>, found: &mut Findings) -> Option<ParamKind> {
    place.object(&["apiVersion", "kind"], found)?;
    let api_version = place.required("apiVersion", found);
    let kind = place.required("kind", found);
    if api_version.is_some_and(|v| v.matches('/').count() > 1 || v.ends_with('/')) {
        let message = "must be a version or group/version, such as example.com/v1";
        found.fault(&place.child_path("apiVersion"), message);
    }
    Some(ParamKind {
        api_version: api_version?.to_owned(),
        kind: kind?.to_owned(),
    })
}

fn named(
    spec: &FieldRef<'_>,
    field: &str,
    valid: fn(&str) -> bool,
    most: usize,
    found: &mut Findings,
) -> Vec<NamedExpression> {
    let mut all: Vec<NamedExpression> = Vec::new();
    let items = spec.items(field, found);
    if items.len() > most {
        let message = format!("has {} items, more than {most}; keep fewer", items.len());
        found.fault(&spec.child_path(field), message);
        return all;
    }
    for item in items {
        item.object(&["expression", "name"], found);
        let name = item.required("name", found);
        let source = source(&item, found);
        let path = item.child_path("name");
        match name {
            Some(name) if !valid(name) => {
                found.fault(&path, format!("{name:?} cannot be a name here"));
            }
            Some(name) if all.iter().any(|n| n.name == name) => {
                found.fault(&path, format!("{name:?} is taken; names must differ"));
            }
            _ => {}
        }
        let name = name.unwrap_or_default().to_owned();
        all.extend(source.map(|source| NamedExpression { name, source }));
    }
    all
}

fn source(place: &FieldRef<'_>, found: &mut Findings) -> Option<ExpressionSource> {
    let text = place.required("expression", found)?;
    Some(ExpressionSource {
        field: place.child_path("expression"),
        text: text.to_owned(),
    })
}

fn mutation(place: &FieldRef<'_>, found: &mut Findings) -> Option<Mutation> {
    const FIELDS: [&str; 5] = [
        "applyConfiguration",
        "expression",
        "jsonPatch",
        "patchType",
        "reinvocationPolicy",
    ];
    place.object(&FIELDS, found)?;
    let choices = [
        ("ApplyConfiguration", PatchType::ApplyConfiguration),
        ("JSONPatch", PatchType::JsonPatch),
    ];
    place.required("patchType", found)?;
    let patch = place.choice("patchType", &choices, found)?;
    let (name, word, other) = match patch {
        PatchType::ApplyConfiguration => ("applyConfiguration", "ApplyConfiguration", "jsonPatch"),
        PatchType::JsonPatch => ("jsonPatch", "JSONPatch", "applyConfiguration"),
    };
    if let Some(other) = place.field(other) {
        found.fault(&other.path, format!("must be absent with patchType {word}"));
    }
    let today = place.field(name).and_then(|p| {
        p.object(&["expression"], found);
        source(&p, found)
    });
    // In 2024 the expression was next to patchType, which was ApplyConfiguration.
    let then = place.field("expression").and_then(|_| source(place, found));
    let field = place.child_path("expression");
    match (today, then) {
        (Some(today), Some(then)) if today.text != then.text => {
            found.fault(&field, format!("differs from {}; keep one", today.field));
            None
        }
        (None, Some(_)) if patch == PatchType::JsonPatch => {
            found.fault(&field, "belongs in jsonPatch.expression");
            None
        }
        (Some(source), _) | (None, Some(source)) => Some(Mutation { patch, source }),
        (None, None) => {
            if place.field(name).is_none() {
                let message = format!("is required with patchType {word}");
                found.fault(&place.child_path(name), message);
            }
            None
        }
    }
}

/// Returns the policy's reinvocation, which the layout of 2024 sets in the mutations.
fn reinvocation(
    spec: &FieldRef<'_>,
    mutations: &[FieldRef<'_>],
    found: &mut Findings,
) -> Option<Reinvocation> {
    const FIELD: &str = "reinvocationPolicy";
    let mut chosen: Option<(Reinvocation, String)> = None;
    for place in std::iter::once(spec).chain(mutations) {
        let here = place.child_path(FIELD);
        let Some(choice) = place.choice(FIELD, &REINVOCATION, found) else {
            continue;
        };
        match &chosen {
            Some((first, where_)) if *first != choice => {
                found.fault(&here, format!("differs from {where_}; keep one for all"));
            }
            Some(_) => {}
            None => chosen = Some((choice, here)),
        }
    }
    if chosen.is_none() {
        found.fault(&spec.child_path(FIELD), "is required: Never or IfNeeded");
    }
    chosen.map(|(choice, _)| choice)
}
