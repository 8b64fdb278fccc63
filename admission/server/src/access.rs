//! Asks the API server for access decisions by SubjectAccessReviews.
//! <https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/subject-access-review-v1/>

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewStatus};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

const CALL_DEADLINE: Duration = Duration::from_secs(2);

pub(crate) async fn subject_access_review(
    client: &Client,
    spec: Value,
) -> Result<SubjectAccessReviewStatus, String> {
    let review = json!({"metadata": {}, "spec": spec});
    let review: SubjectAccessReview = serde_json::from_value(review).map_err(|e| e.to_string())?;
    let (api, params) = (Api::all(client.clone()), PostParams::default());
    let answer: SubjectAccessReview = with_deadline(api.create(&params, &review)).await?;
    Ok(answer.status.unwrap_or_default())
}

/// Makes a call with a deadline. The error is the API server's message.
pub(crate) async fn with_deadline<T>(
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, String> {
    let answer = tautline_runtime::api_call::within(CALL_DEADLINE, call).await;
    answer.map_err(|error| error.message())
}

pub(crate) fn requester(user: &Value) -> Value {
    json!({"user": user["username"], "uid": user["uid"], "groups": user["groups"],
           "extra": user["extra"]})
}
