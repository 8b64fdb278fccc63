//! Reads and writes Tautline's own objects, each call with a deadline.

use std::time::Duration;

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
use tautline_runtime::{
    api_call::{self, ApiCallError},
    error_text::error_text,
};

use crate::{
    binding_spec::{BindingSpec, BindingStatus},
    binding_status::is_in_range,
    reconciler::{NewBinding, OfferStatusWrite},
    write_error::WriteError,
};

const DEADLINE: Duration = Duration::from_secs(10);
/// The field manager of counts, conditions and compliance in server-side apply.
const MANAGER: &str = CONTROLLER;
/// The field manager of the times of evictions and mitigations.
const ACTIONS_MANAGER: &str = "tautline-controller-acts";

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    let answer = api_call::within(DEADLINE, call).await;
    answer.map_err(|error| match error {
        ApiCallError::Failed(kube::Error::Api(status)) => {
            let kube::core::Status {
                code,
                reason,
                message,
                ..
            } = *status;
            WriteError::from_status(code, &reason, message)
        }
        ApiCallError::Failed(error) => WriteError::Refused(error_text(&error)),
        ApiCallError::Timeout(limit) => WriteError::Timeout(limit),
    })
}

pub(super) async fn create(
    client: Client,
    new: &NewBinding,
) -> Result<ConstraintPolicyBinding, WriteError> {
    let api = Api::namespaced(client, &new.offer.namespace);
    within(api.create(&PostParams::default(), &object(new))).await
}

/// Returns the binding to create, without a status.
pub(crate) fn object(new: &NewBinding) -> ConstraintPolicyBinding {
    let offer = &new.offer;
    let reference = |r: &Reference| ObjectReference {
        cluster: r.cluster.clone(),
        namespace: r.namespace.clone(),
        api_version: r.api_version.clone(),
        kind: r.kind.clone(),
        name: r.name.clone(),
    };
    ConstraintPolicyBinding {
        metadata: ObjectMeta {
            name: Some(new.name.clone()),
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
            targets: new
                .targets
                .iter()
                .map(|(name, r)| (name.to_string(), reference(r)))
                .collect(),
        },
        status: None,
    }
}

pub(super) async fn get_binding(
    client: Client,
    namespace: &str,
    name: &str,
) -> Result<ConstraintPolicyBinding, WriteError> {
    let api: Api<ConstraintPolicyBinding> = Api::namespaced(client, namespace);
    within(api.get(name)).await
}

/// Deletes the binding with this UID, and no later binding of the same name.
pub(super) async fn delete(client: Client, binding: &BindingSpec) -> Result<(), WriteError> {
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

/// Writes a binding's status except for the time of its mitigation, which is removed once the
/// binding is in range again.
pub(super) async fn binding_status(
    client: Client,
    binding: &BindingSpec,
    status: &BindingStatus,
) -> Result<(), WriteError> {
    let api: Api<ConstraintPolicyBinding> = Api::namespaced(client, &binding.namespace);
    let recovered = status.last_mitigated_timestamp.is_some() && is_in_range(status);
    let status = BindingStatus {
        last_mitigated_timestamp: None,
        ..status.clone()
    };
    let patch = json!({
        "apiVersion": API_VERSION, "kind": "ConstraintPolicyBinding",
        "metadata": {"name": &*binding.name, "uid": binding.uid},
        "status": status,
    });
    apply(&api, &binding.name, MANAGER, patch).await?;
    if recovered {
        // A server-side apply would not remove the field if Turnbuckle owns it.
        let patch = json!({
            "metadata": {"uid": binding.uid}, "status": {"lastMitigatedTimestamp": null},
        });
        let params = PatchParams::default();
        within(api.patch_status(&binding.name, &params, &Patch::Merge(patch))).await?;
    }
    Ok(())
}

pub(super) async fn note_mitigation(
    client: Client,
    binding: &BindingSpec,
    at: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
) -> Result<(), WriteError> {
    let api: Api<ConstraintPolicyBinding> = Api::namespaced(client, &binding.namespace);
    let patch = json!({
        "apiVersion": API_VERSION, "kind": "ConstraintPolicyBinding",
        "metadata": {"name": &*binding.name, "uid": binding.uid},
        "status": {"lastMitigatedTimestamp": at},
    });
    apply(&api, &binding.name, ACTIONS_MANAGER, patch).await
}

pub(super) async fn get_offer_status(
    client: Client,
    namespace: &str,
    name: &str,
) -> Result<ConstraintPolicyOfferStatus, WriteError> {
    let api: Api<ConstraintPolicyOffer> = Api::namespaced(client, namespace);
    let offer = within(api.get(name)).await?;
    Ok(offer.status.unwrap_or_default())
}

/// Writes an offer's status except for its last eviction, which another field manager owns.
pub(super) async fn offer_status(
    client: Client,
    namespace: &str,
    name: &str,
    write: &OfferStatusWrite,
    status: &ConstraintPolicyOfferStatus,
) -> Result<(), WriteError> {
    let api: Api<ConstraintPolicyOffer> = Api::namespaced(client, namespace);
    let mut metadata = json!({"name": name});
    if !write.uid.is_empty() {
        metadata["uid"] = json!(write.uid);
    }
    let patch = json!({
        "apiVersion": API_VERSION, "kind": "ConstraintPolicyOffer",
        "metadata": metadata,
        "status": status,
    });
    apply(&api, name, MANAGER, patch).await
}

pub(super) async fn note_eviction(
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
    apply(&api, &offer.name, ACTIONS_MANAGER, patch).await
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
