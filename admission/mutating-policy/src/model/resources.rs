//! Parses the rules and label selectors by which a mutation policy or its binding selects requests.

use tautline_core::selector::{Expression, Selector};

use super::{MatchPolicy, MatchResources, Rule, ScopeType};
use crate::manifest::{FieldRef, Findings, is_qualified};

pub(super) fn read(place: &FieldRef<'_>, found: &mut Findings) -> MatchResources {
    const FIELDS: [&str; 5] = [
        "excludeResourceRules",
        "matchPolicy",
        "namespaceSelector",
        "objectSelector",
        "resourceRules",
    ];
    place.object(&FIELDS, found);
    let choices = [
        ("Exact", MatchPolicy::Exact),
        ("Equivalent", MatchPolicy::Equivalent),
    ];
    let rules = rules(place, "resourceRules", found);
    // A deleted object cannot be changed.
    for (i, rule) in rules.iter().enumerate() {
        let field = format!("{}.resourceRules[{i}].operations", place.path);
        for operation in &rule.operations {
            if operation == "DELETE" {
                found.fault(
                    &field,
                    "nothing can be changed on DELETE; use CREATE or UPDATE",
                );
            }
        }
    }
    MatchResources {
        rules,
        exclude: self::rules(place, "excludeResourceRules", found),
        namespaces: selector(place, "namespaceSelector", found).unwrap_or_default(),
        objects: selector(place, "objectSelector", found).unwrap_or_default(),
        policy: place
            .choice("matchPolicy", &choices, found)
            .unwrap_or_default(),
    }
}

fn rules(place: &FieldRef<'_>, name: &str, found: &mut Findings) -> Vec<Rule> {
    let items = place.items(name, found);
    items.iter().map(|item| rule(item, found)).collect()
}

fn rule(place: &FieldRef<'_>, found: &mut Findings) -> Rule {
    const FIELDS: [&str; 6] = [
        "apiGroups",
        "apiVersions",
        "operations",
        "resourceNames",
        "resources",
        "scope",
    ];
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    place.object(&FIELDS, found);
    let scopes = [
        ("Cluster", ScopeType::Cluster),
        ("Namespaced", ScopeType::Namespaced),
        ("*", ScopeType::All),
    ];
    let mut list = |name: &str| {
        let items = place.texts(name, found);
        let path = place.child_path(name);
        if items.is_empty() {
            found.fault(&path, "is required");
        }
        if name != "apiGroups" && items.iter().any(String::is_empty) {
            found.fault(&path, "must hold no empty text");
        }
        if items.len() > 1 && has_redundant_wildcard(name, &items) {
            found.fault(&path, "a wildcard must stand alone");
        }
        items
    };
    let (groups, versions) = (list("apiGroups"), list("apiVersions"));
    let (operations, resources) = (list("operations"), list("resources"));
    for operation in &operations {
        if !OPERATIONS.contains(&operation.as_str()) {
            let message = format!("{operation:?} is not known; use CREATE or UPDATE");
            found.fault(&place.child_path("operations"), message);
        }
    }
    let names = place.texts("resourceNames", found);
    for (i, name) in names.iter().enumerate() {
        if names[..i].contains(name) {
            let message = format!("{name:?} is a duplicate");
            found.fault(&place.child_path("resourceNames"), message);
        }
    }
    Rule {
        operations,
        groups,
        versions,
        resources,
        names,
        scope: place.choice("scope", &scopes, found).unwrap_or_default(),
    }
}

/// Returns whether a wildcard makes other items redundant. `*` in resources does not include
/// subresources.
fn has_redundant_wildcard(name: &str, items: &[String]) -> bool {
    let has = |text: &str| items.iter().any(|i| i == text);
    if name == "resources" {
        has("*/*") || has("*") && items.iter().any(|i| i != "*" && !i.contains('/'))
    } else {
        has("*")
    }
}

pub(super) fn selector(place: &FieldRef<'_>, name: &str, found: &mut Findings) -> Option<Selector> {
    let place = place.field(name)?;
    place.object(&["matchExpressions", "matchLabels"], found)?;
    let mut selector = Selector::default();
    if let Some(labels) = place.field("matchLabels") {
        let pairs = labels.pairs(found);
        for (key, value) in pairs {
            label_key(&labels.path, &key, found);
            selector.match_labels.push((key, value));
        }
    }
    for item in place.items("matchExpressions", found) {
        item.object(&["key", "operator", "values"], found);
        let key = item.required("key", found);
        let operator = item.required("operator", found);
        let values = item.texts("values", found);
        let (Some(key), Some(operator)) = (key, operator) else {
            continue;
        };
        label_key(&item.path, key, found);
        match Expression::new(key, operator, values) {
            Ok(expression) => selector.match_expressions.push(expression),
            Err(error) => found.fault(&item.path, error.to_string()),
        }
    }
    Some(selector)
}

fn label_key(path: &str, key: &str, found: &mut Findings) {
    if !is_qualified(key) {
        found.fault(path, format!("{key:?} cannot be the key of a label"));
    }
}
