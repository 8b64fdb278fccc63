//! Our own resources: what their schema cannot say is refused with the field and
//! the mend, what is only odd is a warning, and what is optional is filled in.

mod check;
mod defaults;
mod warn;

use std::sync::Arc;

use tautline_runtime::feed::Feed;

use crate::{
    job::{Job, Now, Verdict},
    review::Request,
};

/// `/validate-constraint`
pub(crate) fn validate(feed: Feed) -> Arc<dyn Job> {
    Arc::new(Now(move |request: &Request| {
        check::verdict(request, &feed.snapshot())
    }))
}

/// `/mutate-constraint`
pub(crate) fn default() -> Arc<dyn Job> {
    Arc::new(Now(|request: &Request| {
        let (patch, filled) = match request.kind[2].as_str() {
            "ConstraintPolicy" => defaults::policy(&request.object),
            "ConstraintPolicyOffer" => defaults::offer(&request.object),
            _ => (Vec::new(), Vec::new()),
        };
        match filled.as_slice() {
            [] => Verdict::allow("Complete", ""),
            fields => Verdict::mutate("Defaulted", fields.join(", "), &patch),
        }
    }))
}
