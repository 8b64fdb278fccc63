//! Asks the API server for access decisions by SubjectAccessReviews.
//! <https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/subject-access-review-v1/>

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewStatus};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tautline_runtime::api_call::{ApiCallError, within};

pub(crate) const CALL_DEADLINE: Duration = Duration::from_secs(2);

pub(crate) async fn subject_access_review(
    client: &Client,
    spec: Value,
) -> Result<SubjectAccessReviewStatus, ApiCallError> {
    let review = json!({"metadata": {}, "spec": spec});
    let review: SubjectAccessReview =
        serde_json::from_value(review).map_err(kube::Error::SerdeError)?;
    let (api, params) = (Api::all(client.clone()), PostParams::default());
    let answer = within(CALL_DEADLINE, api.create(&params, &review)).await?;
    Ok(answer.status.unwrap_or_default())
}

pub(crate) fn requester(user: &Value) -> Value {
    json!({"user": user["username"], "uid": user["uid"], "groups": user["groups"],
           "extra": user["extra"]})
}
