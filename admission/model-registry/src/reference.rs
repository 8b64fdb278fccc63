//! References to other objects, by kind and name.

use crate::{FieldError, error::Errors, field_ref::FieldRef};

/// Checks that a reference has a name and this kind, or no kind.
pub(crate) fn review(reference: &FieldRef<'_>, kind: &str, errors: &mut Errors) {
    review_kind(reference, kind, errors);
    let name = reference.field("name");
    if name.text(errors).is_none_or(str::is_empty) {
        errors.push(FieldError::required(&name.path, format!("name a {kind}")));
    }
}

/// Checks that a reference has this kind, or no kind.
pub(crate) fn review_kind(reference: &FieldRef<'_>, kind: &str, errors: &mut Errors) {
    let given = reference.field("kind");
    let other = |given: &str| !given.is_empty() && given != kind;
    if given.text(errors).is_some_and(other) {
        let detail = format!("write {kind}, or leave it out");
        given.invalid(detail, errors);
    }
}
