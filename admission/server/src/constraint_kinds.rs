//! Validates objects of Tautline's kinds beyond their schemas, warns about doubtful ones, and sets
//! defaults.

mod author_access;
mod check;
mod defaults;
mod warnings;

use std::sync::Arc;

use kube::Client;
use tautline_core::trust::TrustedNamespaces;
use tautline_mutating_policy::Request;
use tautline_runtime::cluster_store::ClusterStore;

use crate::{
    response::Response,
    review::{Handler, object_name},
};

/// Returns the handler of `/validate-constraint`.
pub(crate) fn validate_handler(
    store: ClusterStore,
    client: Client,
    trusted: TrustedNamespaces,
) -> Handler {
    Arc::new(move |request: Arc<Request>| {
        let response = check::validate(&request, &store.snapshot(), &trusted);
        let client = client.clone();
        Box::pin(async move {
            if response.code != check::VALID {
                return response;
            }
            match author_access::missing_access(&client, &request).await {
                None => response,
                Some(text) => Response::refuse("AuthorMayNotRead", message(&request, &text)),
            }
        })
    })
}

fn message(request: &Request, text: &str) -> String {
    format!("{} {}: {text}", request.kind.kind, object_name(request))
}

/// Reviews a request to `/mutate-constraint`.
pub(crate) fn set_defaults(request: &Request) -> Response {
    let (patch, filled) = match request.kind.kind.as_str() {
        "ConstraintPolicy" => defaults::policy(&request.object),
        "ConstraintPolicyOffer" => defaults::offer(&request.object),
        _ => (Vec::new(), Vec::new()),
    };
    match filled.as_slice() {
        [] => Response::allow("Complete", ""),
        fields => Response::mutate("Defaulted", fields.join(", "), &patch),
    }
}
