//! Writes to the API server, each with a deadline.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;
use tautline_api::constraint::{
    ConstraintPolicyBinding, ConstraintPolicyBindingSpec, ConstraintPolicyOffer,
    ConstraintPolicyOfferStatus, LastEviction, ObjectReference,
};
use tautline_core::{
    binding::OFFER_LABEL,
    model::Offer,
    names::{API_VERSION, CONTROLLER},
    reference::Reference,
};

use crate::known::{Known, Status};

/// The most that one write may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Owns counts, conditions and compliance in server-side apply.
const MANAGER: &str = CONTROLLER;
/// Owns what is noted of evictions and mitigations.
const ACTS: &str = "tautline-controller-acts";

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The object is gone, or another of its name has come.
    #[error("it is gone, or another of its name has come")]
    Gone,
    #[error("an object of this name exists already")]
    Exists,
    #[error("{0}")]
    Refused(String),
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    match tautline_runtime::api_call::within(DEADLINE, call).await {
        Ok(value) => Ok(value),
        Err(tautline_runtime::api_call::ApiCallError::Failed(kube::Error::Api(status))) => {
            Err(match (status.code, status.reason.as_str()) {
                (404, _) => WriteError::Gone,
                (409, "AlreadyExists") => WriteError::Exists,
                // The UID that was given is not the object's: another by now.
                (409, _) if status.message.contains("Precondition failed") => WriteError::Gone,
                _ => WriteError::Refused(status.message),
            })
        }
        Err(error) => Err(WriteError::Refused(error.to_string())),
    }
}

/// Makes a binding of `offer`.
pub(crate) async fn create(
    client: Client,
    offer: &Offer,
    name: &str,
    targets: &BTreeMap<std::sync::Arc<str>, Reference>,
) -> Result<ConstraintPolicyBinding, WriteError> {
    let reference = |r: &Reference| ObjectReference {
        cluster: r.cluster.clone(),
        namespace: r.namespace.clone(),
        api_version: r.api_version.clone(),
        kind: r.kind.clone(),
        name: r.name.clone(),
    };
    let binding = ConstraintPolicyBinding {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(offer.namespace.to_string()),
            labels: Some([(OFFER_LABEL.to_owned(), offer.name.to_string())].into()),
            owner_references: Some(vec![OwnerReference {
                api_version: API_VERSION.to_owned(),
                kind: "ConstraintPolicyOffer".to_owned(),
                name: offer.name.to_string(),
                uid: offer.uid.to_string(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: ConstraintPolicyBindingSpec {
            offer: offer.name.to_string(),
            targets: targets
                .iter()
                .map(|(name, r)| (name.to_string(), reference(r)))
                .collect(),
        },
        status: None,
    };
    let api = Api::namespaced(client, &offer.namespace);
    within(api.create(&PostParams::default(), &binding)).await
}

/// The binding as the API server has it.
pub(crate) async fn get_binding(
    client: Client,
    namespace: &str,
    name: &str,
) -> Result<ConstraintPolicyBinding, WriteError> {
    let api: Api<ConstraintPolicyBinding> = Api::namespaced(client, namespace);
    within(api.get(name)).await
}

/// Deletes this very binding.
pub(crate) async fn delete(client: Client, binding: &Known) -> Result<(), WriteError> {
    let api: Api<ConstraintPolicyBinding> = Api::namespaced(client, &binding.namespace);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(binding.uid.to_string()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    within(api.delete(&binding.name, &params)).await.map(|_| ())
}

/// Writes a binding's status, all but what the acts own.
pub(crate) async fn binding_status(
    client: Client,
    binding: &Known,
    status: &Status,
) -> Result<(), WriteError> {
    let api: Api<ConstraintPolicyBinding> = Api::namespaced(client, &binding.namespace);
    let status = Status {
        last_mitigated_timestamp: None,
        ..status.clone()
    };
    let patch = json!({
        "apiVersion": API_VERSION, "kind": "ConstraintPolicyBinding",
        "metadata": {"name": &*binding.name, "uid": binding.uid},
        "status": status,
    });
    apply(&api, &binding.name, MANAGER, patch).await
}

/// Notes that the underlay is being asked to mitigate.
pub(crate) async fn mitigated(
    client: Client,
    binding: &Known,
    at: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
) -> Result<(), WriteError> {
    let api: Api<ConstraintPolicyBinding> = Api::namespaced(client, &binding.namespace);
    let patch = json!({
        "apiVersion": API_VERSION, "kind": "ConstraintPolicyBinding",
        "metadata": {"name": &*binding.name, "uid": binding.uid},
        "status": {"lastMitigatedTimestamp": at},
    });
    apply(&api, &binding.name, ACTS, patch).await
}

/// The offer's status as the API server has it.
pub(crate) async fn get_offer_status(
    client: Client,
    namespace: &str,
    name: &str,
) -> Result<ConstraintPolicyOfferStatus, WriteError> {
    let api: Api<ConstraintPolicyOffer> = Api::namespaced(client, namespace);
    let offer = within(api.get(name)).await?;
    Ok(offer.status.unwrap_or_default())
}

/// Writes an offer's status, all but what the acts own.
pub(crate) async fn offer_status(
    client: Client,
    namespace: &str,
    name: &str,
    uid: &str,
    status: &ConstraintPolicyOfferStatus,
) -> Result<(), WriteError> {
    let api: Api<ConstraintPolicyOffer> = Api::namespaced(client, namespace);
    let mut metadata = json!({"name": name});
    // Of an offer that cannot be read it is not known.
    if !uid.is_empty() {
        metadata["uid"] = uid.into();
    }
    let patch = json!({
        "apiVersion": API_VERSION, "kind": "ConstraintPolicyOffer",
        "metadata": metadata,
        "status": status,
    });
    apply(&api, name, MANAGER, patch).await
}

/// Notes an eviction before it is asked for.
pub(crate) async fn evicting(
    client: Client,
    offer: &Offer,
    eviction: &LastEviction,
) -> Result<(), WriteError> {
    let api: Api<ConstraintPolicyOffer> = Api::namespaced(client, &offer.namespace);
    let patch = json!({
        "apiVersion": API_VERSION, "kind": "ConstraintPolicyOffer",
        "metadata": {"name": &*offer.name, "uid": offer.uid},
        "status": {"lastEviction": eviction},
    });
    apply(&api, &offer.name, ACTS, patch).await
}

async fn apply<K>(
    api: &Api<K>,
    name: &str,
    manager: &str,
    patch: serde_json::Value,
) -> Result<(), WriteError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams::apply(manager).force();
    within(api.patch_status(name, &params, &Patch::Apply(patch)))
        .await
        .map(|_| ())
}
