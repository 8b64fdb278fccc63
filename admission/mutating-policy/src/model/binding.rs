//! Parses the bindings of mutation policies, including their reference to parameters.

use super::{Binding, ParamRef, ParamTarget, resources};
use crate::manifest::{FieldRef, Findings};
use tautline_core::dns::is_subdomain;

pub(super) fn read(name: &str, spec: &FieldRef<'_>, found: &mut Findings) -> Option<Binding> {
    spec.object(&["matchResources", "paramRef", "policyName"], found)?;
    let policy = spec.required("policyName", found);
    if policy.is_some_and(|p| !is_subdomain(p)) {
        found.fault("spec.policyName", "must be the name of a policy");
    }
    let params = spec.field("paramRef").map(|p| param_ref(&p, found));
    let resources = spec.field("matchResources");
    Some(Binding {
        name: name.to_owned(),
        policy: policy?.to_owned(),
        resources: resources.map(|r| resources::read(&r, found)),
        params: match params {
            None => None,
            Some(params) => Some(params?),
        },
    })
}

fn param_ref(place: &FieldRef<'_>, found: &mut Findings) -> Option<ParamRef> {
    const FIELDS: [&str; 4] = ["name", "namespace", "parameterNotFoundAction", "selector"];
    place.object(&FIELDS, found)?;
    let name = place.text_field("name", found);
    let selector = resources::selector(place, "selector", found);
    let which = match (name, selector) {
        (Some(_), Some(_)) => {
            found.fault(&place.path, "name and selector exclude each other");
            None
        }
        (Some(name), None) => Some(ParamTarget::Name(name.to_owned())),
        (None, Some(selector)) => Some(ParamTarget::Selected(selector)),
        (None, None) => {
            found.fault(&place.path, "one of name and selector is required");
            None
        }
    };
    let field = "parameterNotFoundAction";
    let deny = place.choice(field, &[("Allow", false), ("Deny", true)], found);
    if place.field(field).is_none() {
        let message = "is missing, which means Deny here; the API server requires it";
        found.warn(&place.child_path(field), message);
    }
    let namespace = place.text_field("namespace", found);
    Some(ParamRef {
        target: which?,
        namespace: namespace.map(str::to_owned),
        deny_if_missing: deny.unwrap_or(true),
    })
}
