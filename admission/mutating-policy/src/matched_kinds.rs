//! Looks up the fields of the kinds that a policy matches when the policy is loaded.

use tautline_structured_merge::{Schema, Schemas, Shape};

use crate::model::MatchResources;
use crate::request::plural;
use tautline_cel::ObjectSchema;

pub(crate) struct MatchedKinds(Vec<Schema>);

impl MatchedKinds {
    /// Returns the kinds that the rules match; `None` unless all rules name only resources with
    /// bundled schemas.
    pub fn from_constraints(constraints: &MatchResources) -> Option<Self> {
        let mut all = Vec::new();
        for rule in &constraints.rules {
            for group in &rule.groups {
                for version in &rule.versions {
                    for resource in &rule.resources {
                        all.push(schema(group, version, resource)?);
                    }
                }
            }
        }
        Some(Self(all)).filter(|kinds| !kinds.0.is_empty())
    }
}

/// Returns the bundled schema of `resource`; `None` for `*` and for subresources.
fn schema(group: &str, version: &str, resource: &str) -> Option<Schema> {
    let schemas = Schemas::bundled();
    let mut kinds = schemas.kinds();
    let (.., kind) = kinds.find(|(g, v, kind)| {
        *g == group
            && *v == version
            && (plural(kind) == resource || kind.to_lowercase() == resource)
    })?;
    schemas.kind(group, version, kind)
}

impl ObjectSchema for MatchedKinds {
    /// Returns whether one of the kinds has the field; `None` if no schema is known to have it and
    /// one leaves it open.
    fn has_field(&self, path: &[&str]) -> Option<bool> {
        let mut known = Some(false);
        for schema in &self.0 {
            match has(schema, path) {
                Some(true) => return Some(true),
                None => known = None,
                Some(false) => {}
            }
        }
        known
    }
}

fn has(schema: &Schema, path: &[&str]) -> Option<bool> {
    let mut here = schema.clone();
    for name in path {
        while here.shape() == Shape::List {
            here = here.element()?;
        }
        if matches!(here.shape(), Shape::Any | Shape::Map) {
            return None;
        }
        match here.field(name) {
            Some(field) => here = field,
            None => return Some(false),
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rule;

    fn kinds(groups: &[&str], resources: &[&str]) -> Option<MatchedKinds> {
        let all = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect();
        MatchedKinds::from_constraints(&MatchResources {
            rules: vec![Rule {
                groups: all(groups),
                versions: vec!["v1".to_owned()],
                resources: all(resources),
                ..Rule::default()
            }],
            ..MatchResources::default()
        })
    }

    #[test]
    fn unknown_kinds_have_no_schema() {
        for (groups, resources) in [
            (&[""], &["pods", "widgets"][..]),
            (&["*"], &["pods"]),
            (&[""], &["*"]),
            (&[""], &["pods/status"]),
            (&["example.com"], &["pods"]),
        ] {
            assert!(kinds(groups, resources).is_none(), "{resources:?}");
        }
        assert!(kinds(&[""], &["endpoints"]).is_some());
    }

    #[test]
    fn fields_are_followed_through_lists() {
        let pods = kinds(&[""], &["pods"]).unwrap();
        assert_eq!(
            pods.has_field(&["spec", "containers", "env", "value"]),
            Some(true)
        );
        assert_eq!(
            pods.has_field(&["metadata", "labels", "any", "thing"]),
            None
        );
        assert_eq!(pods.has_field(&["spec", "contianers"]), Some(false));
        assert_eq!(
            pods.has_field(&["spec", "containers", "name", "x"]),
            Some(false)
        );
        assert_eq!(pods.has_field(&["data"]), Some(false));
        let both = kinds(&[""], &["pods", "configmaps"]).unwrap();
        assert_eq!(both.has_field(&["data"]), Some(true));
        assert_eq!(both.has_field(&["dada"]), Some(false));
    }
}
