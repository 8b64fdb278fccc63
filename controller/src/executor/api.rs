//! Reads and writes Tautline's own objects, each call with a deadline.

use std::{fmt::Debug, panic::AssertUnwindSafe};

use futures::FutureExt;
use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tautline_api::constraint::{
    ConstraintPolicyBinding, ConstraintPolicyBindingSpec, ConstraintPolicyOffer,
    ConstraintPolicyOfferStatus,
};
use tautline_core::{
    binding::OFFER_LABEL,
    names::{API_VERSION, CONTROLLER},
};
use tautline_runtime::{
    api_call::{self, ApiCallError},
    error_text::error_text,
};

use super::{Context, DEADLINE};
use crate::{
    binding_spec::{BindingSpec, BindingStatus},
    binding_status::is_in_range,
    reconciler::{NewBinding, OfferStatusWrite, Write, WriteError, Written},
};

/// The field manager of counts, conditions and compliance in server-side apply.
const MANAGER: &str = CONTROLLER;
/// The field manager of the times of evictions and mitigations.
pub(super) const ACTIONS_MANAGER: &str = "tautline-controller-acts";

/// Carries out a write and counts it in the metrics. A panic counts as a failed write.
pub(super) async fn write(context: &Context, write: Write) -> (Write, Result<Written, WriteError>) {
    let result = AssertUnwindSafe(try_write(&context.client, &write))
        .catch_unwind()
        .await;
    let result = result.unwrap_or_else(|_| {
        tracing::error!(?write, "a write panicked");
        Err(WriteError::Refused("the write panicked".to_owned()))
    });
    let what = match &write {
        Write::Create(_) => "create",
        Write::Delete(_) => "delete",
        Write::Status(..) => "status",
        Write::OfferStatus(_) => "offer-status",
    };
    context.metrics.wrote(what, result.is_ok());
    (write, result)
}

async fn try_write(client: &Client, write: &Write) -> Result<Written, WriteError> {
    match write {
        Write::Create(new) => create(client, new).await,
        Write::Delete(spec) => delete(client, spec).await,
        Write::Status(spec, status) => binding_status(client, spec, status).await,
        Write::OfferStatus(write) => offer_status(client, write).await,
    }
}

async fn create(client: &Client, new: &NewBinding) -> Result<Written, WriteError> {
    let api = Api::namespaced(client.clone(), &new.offer.namespace);
    let (binding, existed) = match within(api.create(&PostParams::default(), &object(new))).await {
        // The watch has not reported the binding yet, or it belongs to another offer.
        Err(WriteError::Exists) => (within(api.get(&new.name)).await?, true),
        created => (created?, false),
    };
    let binding = (
        BindingSpec::from(&binding),
        binding.status.unwrap_or_default(),
    );
    Ok(Written::Binding(Box::new(binding), existed))
}

/// Returns the binding to create, without a status.
pub(crate) fn object(new: &NewBinding) -> ConstraintPolicyBinding {
    let offer = &new.offer;
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
                .map(|(name, r)| (name.to_string(), r.clone()))
                .collect(),
        },
        status: None,
    }
}

/// Deletes the binding with this UID, and no later binding of the same name.
async fn delete(client: &Client, binding: &BindingSpec) -> Result<Written, WriteError> {
    let api: Api<ConstraintPolicyBinding> = Api::namespaced(client.clone(), &binding.namespace);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(binding.uid.to_string()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    within(api.delete(&binding.name, &params)).await?;
    Ok(Written::Done)
}

/// Writes a binding's status except for the time of its mitigation, which is removed once the
/// binding is in range again.
async fn binding_status(
    client: &Client,
    binding: &BindingSpec,
    status: &BindingStatus,
) -> Result<Written, WriteError> {
    let api: Api<ConstraintPolicyBinding> = Api::namespaced(client.clone(), &binding.namespace);
    let recovered = status.last_mitigated_timestamp.is_some() && is_in_range(status);
    let status = BindingStatus {
        last_mitigated_timestamp: None,
        ..status.clone()
    };
    apply(&api, &binding.name, &binding.uid, MANAGER, json!(status)).await?;
    if recovered {
        // A server-side apply would not remove the field if Turnbuckle owns it.
        let patch = json!({
            "metadata": {"uid": binding.uid}, "status": {"lastMitigatedTimestamp": null},
        });
        let params = PatchParams::default();
        within(api.patch_status(&binding.name, &params, &Patch::Merge(patch))).await?;
    }
    Ok(Written::Done)
}

/// Writes an offer's status except for its last eviction, which another field manager owns.
async fn offer_status(client: &Client, write: &OfferStatusWrite) -> Result<Written, WriteError> {
    let (namespace, name) = write.key.split_once('/').unwrap_or_default();
    let api: Api<ConstraintPolicyOffer> = Api::namespaced(client.clone(), namespace);
    let mut status = write.status.clone();
    if write.first {
        // Another replica may have written the status last, so its transition times are kept.
        let existing = within(api.get(name)).await?.status.unwrap_or_default();
        keep_transition_times(&mut status, &existing);
    }
    apply(&api, name, &write.uid, MANAGER, json!(status)).await?;
    Ok(Written::OfferStatus(Box::new(status)))
}

fn keep_transition_times(
    status: &mut ConstraintPolicyOfferStatus,
    existing: &ConstraintPolicyOfferStatus,
) {
    for condition in &mut status.conditions {
        let same = existing
            .conditions
            .iter()
            .find(|c| c.type_ == condition.type_ && c.status == condition.status);
        if let Some(same) = same {
            condition.last_transition_time = same.last_transition_time.clone();
        }
    }
}

/// Applies fields of the status of the object with this UID; with an empty UID, of any object with
/// the name.
pub(super) async fn apply<K>(
    api: &Api<K>,
    name: &str,
    uid: &str,
    manager: &str,
    status: Value,
) -> Result<(), WriteError>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + Debug,
{
    let mut metadata = json!({"name": name});
    if !uid.is_empty() {
        metadata["uid"] = uid.into();
    }
    let patch = json!({
        "apiVersion": API_VERSION, "kind": K::kind(&()), "metadata": metadata, "status": status,
    });
    let params = PatchParams::apply(manager).force();
    within(api.patch_status(name, &params, &Patch::Apply(patch))).await?;
    Ok(())
}

pub(super) async fn within<T>(
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, WriteError> {
    let answer = api_call::within(DEADLINE, call).await;
    answer.map_err(|error| match error {
        ApiCallError::Failed(kube::Error::Api(status)) => {
            WriteError::from_status(status.code, &status.reason, status.message.clone())
        }
        ApiCallError::Failed(error) => WriteError::Refused(error_text(&error)),
        ApiCallError::Timeout(limit) => WriteError::Timeout(limit),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

    use super::*;
    use crate::binding_status::to_api_time;

    fn ready(status: &str, at: u64) -> ConstraintPolicyOfferStatus {
        let ready = Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: String::new(),
            message: String::new(),
            last_transition_time: to_api_time(std::time::Duration::from_secs(at)),
            observed_generation: None,
        };
        ConstraintPolicyOfferStatus {
            conditions: vec![ready],
            ..ConstraintPolicyOfferStatus::default()
        }
    }

    #[test]
    fn first_offer_status_keeps_the_transition_of_another_replica() {
        let mut status = ready("True", 9);
        keep_transition_times(&mut status, &ready("True", 1));
        assert_eq!(status, ready("True", 1));
    }

    #[test]
    fn first_offer_status_has_its_own_time_after_a_transition() {
        let mut status = ready("False", 9);
        keep_transition_times(&mut status, &ready("True", 1));
        assert_eq!(status, ready("False", 9));
    }
}
