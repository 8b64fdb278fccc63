//! Our own resources: what their schema cannot say is refused with the field and
//! the mend, what is only odd is a warning, and what is optional is filled in.

mod check;
mod defaults;
mod rights;
mod warn;

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use tautline_core::trust::TrustedNamespaces;
use tautline_runtime::cluster_store::ClusterStore;

use crate::{
    job::{Job, Now, Verdict},
    review::Request,
};

/// `/validate-constraint`
pub(crate) struct Validate {
    pub feed: ClusterStore,
    pub client: Client,
    pub trusted: TrustedNamespaces,
}

impl Job for Validate {
    fn review(self: Arc<Self>, request: Arc<Request>) -> BoxFuture<'static, Verdict> {
        Box::pin(async move {
            let verdict = check::verdict(&request, &self.feed.snapshot(), &self.trusted);
            if verdict.code != check::VALID {
                return verdict;
            }
            match rights::lacking(&self.client, &request).await {
                None => verdict,
                Some(text) => Verdict::refuse("AuthorMayNotRead", told(&request, &text)),
            }
        })
    }
}

/// What is wrong, of what.
fn told(request: &Request, text: &str) -> String {
    format!("{} {}: {text}", request.kind[2], request.object_name())
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
