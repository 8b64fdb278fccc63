//! Carries out the reconciler's writes to the API server.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tautline_api::constraint::{ConstraintPolicyBinding, ConstraintPolicyOfferStatus};

use super::{api, context::Context};
use crate::{
    binding_spec::{BindingSpec, BindingStatus, key},
    reconciler::{NewBinding, OfferStatusWrite, Write, WriteResult},
    write_error::WriteError,
};

/// Carries out a write and counts it in the metrics. A panic counts as a failed write.
pub(super) async fn write(context: &Context, write: Write) -> WriteResult {
    let result = AssertUnwindSafe(try_write(context, &write))
        .catch_unwind()
        .await;
    let result = result.unwrap_or_else(|_| {
        tracing::error!(?write, "a write panicked");
        write.failed(WriteError::Refused("the write panicked".to_owned()))
    });
    let (what, ok) = match &result {
        WriteResult::Created { result, .. } => ("create", result.is_ok()),
        WriteResult::Deleted { result, .. } => ("delete", result.is_ok()),
        WriteResult::Status { result, .. } => ("status", result.is_ok()),
        WriteResult::OfferStatus { result, .. } => ("offer-status", result.is_ok()),
    };
    context.metrics.wrote(what, ok);
    result
}

async fn try_write(context: &Context, write: &Write) -> WriteResult {
    let client = context.client.clone();
    match write {
        Write::Create(new) => {
            let (result, existed) = create(context, new).await;
            let spec = |b: ConstraintPolicyBinding| -> Box<(BindingSpec, BindingStatus)> {
                Box::new((BindingSpec::from(&b), b.status.unwrap_or_default()))
            };
            WriteResult::Created {
                offer: key(&new.offer.namespace, &new.offer.name),
                key: new.key(),
                existed,
                result: result.map(spec),
            }
        }
        Write::Delete(spec) => WriteResult::Deleted {
            result: api::delete(client, spec).await,
            spec: spec.clone(),
        },
        Write::Status(spec, status) => WriteResult::Status {
            key: spec.key(),
            uid: spec.uid.clone(),
            result: api::binding_status(client, spec, status).await,
        },
        Write::OfferStatus(write) => WriteResult::OfferStatus {
            key: write.key.clone(),
            uid: write.uid.clone(),
            result: offer_status(context, write).await.map(Box::new),
        },
    }
}

async fn create(
    context: &Context,
    new: &NewBinding,
) -> (Result<ConstraintPolicyBinding, WriteError>, bool) {
    match api::create(context.client.clone(), new).await {
        Err(WriteError::Exists) => {
            // The watch has not reported the binding yet, or it belongs to another offer.
            let namespace = &new.offer.namespace;
            let existing = api::get_binding(context.client.clone(), namespace, &new.name);
            (existing.await, true)
        }
        result => (result, false),
    }
}

async fn offer_status(
    context: &Context,
    write: &OfferStatusWrite,
) -> Result<ConstraintPolicyOfferStatus, WriteError> {
    let (namespace, name) = write.key.split_once('/').unwrap_or_default();
    let mut status = write.status.clone();
    if write.first {
        // Another replica may have written the status last, so its transition times are kept.
        let existing = api::get_offer_status(context.client.clone(), namespace, name).await?;
        keep_transition_times(&mut status, &existing);
    }
    api::offer_status(context.client.clone(), namespace, name, write, &status).await?;
    Ok(status)
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
