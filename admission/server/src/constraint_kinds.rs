//! Validates objects of Tautline's kinds beyond their schemas, warns about doubtful ones, and sets
//! defaults.

mod author_access;
mod check;
mod defaults;
mod warnings;

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use tautline_core::trust::TrustedNamespaces;
use tautline_runtime::cluster_store::ClusterStore;

use crate::{
    handler::{Handler, SyncHandler},
    response::Response,
    review::Request,
};

/// The handler of `/validate-constraint`.
pub(crate) struct Validate {
    pub store: ClusterStore,
    pub client: Client,
    pub trusted: TrustedNamespaces,
}

impl Handler for Validate {
    fn review(self: Arc<Self>, request: Arc<Request>) -> BoxFuture<'static, Response> {
        Box::pin(async move {
            let response = check::validate(&request, &self.store.snapshot(), &self.trusted);
            if response.code != check::VALID {
                return response;
            }
            match author_access::missing_access(&self.client, &request).await {
                None => response,
                Some(text) => Response::refuse("AuthorMayNotRead", message(&request, &text)),
            }
        })
    }
}

fn message(request: &Request, text: &str) -> String {
    format!("{} {}: {text}", request.kind[2], request.object_name())
}

/// Returns the handler of `/mutate-constraint`.
pub(crate) fn default_handler() -> Arc<dyn Handler> {
    Arc::new(SyncHandler(|request: &Request| {
        let (patch, filled) = match request.kind[2].as_str() {
            "ConstraintPolicy" => defaults::policy(&request.object),
            "ConstraintPolicyOffer" => defaults::offer(&request.object),
            _ => (Vec::new(), Vec::new()),
        };
        match filled.as_slice() {
            [] => Response::allow("Complete", ""),
            fields => Response::mutate("Defaulted", fields.join(", "), &patch),
        }
    }))
}
