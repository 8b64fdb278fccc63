//! Checks that modelURI and cacheURI name the same claim, because only the cache's claim is
//! mounted.

use serde_json::Value;

use crate::{FieldError, error::Errors, field_ref::FieldRef};

const SCHEME: &str = "pvc://";

pub(super) fn review(backend: &FieldRef<'_>, errors: &mut Errors) {
    let (model, cache) = (backend.field("modelURI"), backend.field("cacheURI"));
    let cache_text = cache.text(errors);
    let Some(path) = model.text(errors).and_then(|t| t.strip_prefix(SCHEME)) else {
        return;
    };
    let up = path.split('/').any(|part| part == "..");
    if up {
        let detail = "must not have .. in it";
        model.invalid(detail, errors);
    }
    let Some(claim) = cache_text.and_then(|t| t.strip_prefix(SCHEME)) else {
        let value = Value::from(cache_text.unwrap_or_default());
        let detail = "must be a pvc:// as modelURI is: only that claim is mounted";
        errors.push(FieldError::invalid(&cache.path, &value, detail));
        return;
    };
    let claim = claim.trim_matches('/');
    if claim.is_empty() || claim.contains('/') || [".", ".."].contains(&claim) {
        let detail = "must name one claim, as pvc://CLAIM";
        cache.invalid(detail, errors);
        return;
    }
    let mut parts = path.split('/').filter(|part| !["", "."].contains(part));
    if !up && parts.next() != Some(claim) {
        let detail = "must be a path within the claim of cacheURI, as pvc://CLAIM/PATH";
        model.invalid(detail, errors);
    }
}
