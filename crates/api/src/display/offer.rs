use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;

use crate::constraint::{ConstraintPolicyOffer, ObjectReference};

/// The enforcement of an offer, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enforcement {
    /// `Ignore`, `Mediate` or `Evict`.
    pub violation_policy: String,
    /// As the offer writes it.
    pub period: String,
    /// As the offer writes it.
    pub grace: String,
}

impl Enforcement {
    /// Of an offer.
    pub fn of(offer: &ConstraintPolicyOffer) -> Self {
        let or = |value: &Option<String>, default: &str| match value {
            Some(value) if !value.is_empty() => value.clone(),
            _ => default.to_owned(),
        };
        let policy = offer.spec.violation_policy.unwrap_or_default();
        Self {
            violation_policy: format!("{policy:?}"),
            period: or(&offer.spec.period, "1m"),
            grace: or(&offer.spec.grace, "0s"),
        }
    }
}

/// "Pod/client", with namespace and cluster if they differ from the binding's.
pub fn reference(target: &ObjectReference, own: &str) -> String {
    let mut text = String::new();
    if !target.cluster.is_empty() {
        text = format!("{}:", target.cluster);
    }
    text.push_str(&target.kind);
    if !target.namespace.is_empty() && target.namespace != own {
        text.push_str(&format!("/{}", target.namespace));
    }
    format!("{text}/{}", target.name)
}

/// A target's selector in kubectl's words.
pub fn selector(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return "none, so nothing is selected".into();
    };
    match Selector::try_from(selector.clone()) {
        Ok(parsed) if parsed.selects_all() => "everything".into(),
        Ok(parsed) => parsed.to_string(),
        Err(error) => format!("not valid: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_names_other_namespaces_and_clusters() {
        let of = |cluster: &str, namespace: &str| {
            let target = ObjectReference {
                cluster: cluster.into(),
                namespace: namespace.into(),
                kind: "Pod".into(),
                name: "web".into(),
                ..ObjectReference::default()
            };
            reference(&target, "shop")
        };
        assert_eq!(of("", "shop"), "Pod/web");
        assert_eq!(of("", ""), "Pod/web");
        assert_eq!(of("", "other"), "Pod/other/web");
        assert_eq!(of("east", "other"), "east:Pod/other/web");
    }
}
