//! Reservations as a provider sees them.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use tautline_core::Reference;
use tautline_proto::{MAX_HOLD, allocator as wire};
use tonic::{Code, Request, Status, metadata::MetadataValue};

use crate::types::{Rule, Workload, reference, target};

/// On a call that another replica has passed on.
const FORWARDED: &str = "tautline-forwarded";

/// May this pod have what the rule asks for, on this node?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationRequest {
    /// The pod.
    pub workload: Reference,
    /// Its UID.
    pub uid: String,
    /// The node that it is about to be bound to.
    pub node: String,
    /// By which rule.
    pub rule: Rule,
    /// More on the pod; `None` from callers that send nothing.
    pub details: Option<Workload>,
    /// For how long to hold it for a Confirm. The SDK's server lets through at
    /// most [`LONGEST_HOLD`], also to callers that do not say.
    pub hold: Duration,
    /// Another replica has passed it on: answer it here, or not at all.
    pub forwarded: bool,
}

/// About a reservation that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationRef {
    /// As [`Reserved::id`] said.
    pub id: String,
    /// Another replica has passed it on: answer it here, or not at all.
    pub forwarded: bool,
}

/// What was reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Names it in Confirm and Release; never used again for another.
    pub id: String,
    /// Written to the pod as it is bound.
    pub annotations: BTreeMap<String, String>,
    /// When it ends unless it is confirmed, for people: clocks may differ.
    pub expires: Option<SystemTime>,
}

/// Why nothing was reserved, confirmed or released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocatorError {
    /// The rule's request or limit makes no sense to this provider.
    #[error("{0}")]
    BadRule(String),
    /// The node cannot give it, or not any more.
    #[error("{0}")]
    Exhausted(String),
    /// Of a Confirm: the reservation is not held any more.
    #[error("{0}")]
    Expired(String),
    /// Nothing can be reserved at the moment (starting, no leader yet); callers
    /// may ask again.
    #[error("not now: {0}")]
    Unavailable(String),
    /// Something broke.
    #[error("{0}")]
    Internal(String),
}

impl From<AllocatorError> for Status {
    fn from(error: AllocatorError) -> Self {
        let text = error.to_string();
        match error {
            AllocatorError::BadRule(_) => Self::invalid_argument(text),
            AllocatorError::Exhausted(_) => Self::failed_precondition(text),
            AllocatorError::Expired(_) => Self::not_found(text),
            AllocatorError::Unavailable(_) => Self::unavailable(text),
            AllocatorError::Internal(_) => Self::internal(text),
        }
    }
}

/// What another replica answered instead.
impl From<Status> for AllocatorError {
    fn from(status: Status) -> Self {
        let text = status.message().to_owned();
        // Made up by the transport: nobody has answered.
        if let Some(cause) = std::error::Error::source(&status) {
            return Self::Unavailable(format!("{text}: {cause}"));
        }
        match status.code() {
            Code::InvalidArgument => Self::BadRule(text),
            Code::FailedPrecondition => Self::Exhausted(text),
            Code::NotFound => Self::Expired(text),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                Self::Unavailable(text.trim_start_matches("not now: ").to_owned())
            }
            code => Self::Internal(format!("{code:?}: {text}")),
        }
    }
}

/// Marks a call as passed on, so that nobody passes it on again.
pub fn add_forwarded_metadata<T>(request: &mut Request<T>) {
    let yes = MetadataValue::from_static("true");
    request.metadata_mut().insert(FORWARDED, yes);
}

fn is_forwarded<T>(request: &Request<T>) -> bool {
    request.metadata().contains_key(FORWARDED)
}

impl From<Request<wire::ReserveRequest>> for ReservationRequest {
    fn from(request: Request<wire::ReserveRequest>) -> Self {
        let forwarded = is_forwarded(&request);
        let ask = request.into_inner();
        let hold = match u64::try_from(ask.hold_millis) {
            Ok(millis @ 1..) => Duration::from_millis(millis).min(MAX_HOLD),
            // The longest is safe: nothing is given twice.
            _ => MAX_HOLD,
        };
        Self {
            workload: reference(ask.workload.unwrap_or_default()),
            uid: ask.uid,
            node: ask.node,
            rule: ask.rule.unwrap_or_default().into(),
            details: ask.details.map(Workload::from),
            hold,
            forwarded,
        }
    }
}

/// To be passed on to another replica; mark it with [`mark_forwarded`].
impl From<ReservationRequest> for wire::ReserveRequest {
    fn from(ask: ReservationRequest) -> Self {
        Self {
            workload: Some(target(ask.workload)),
            uid: ask.uid,
            node: ask.node,
            rule: Some(ask.rule.into()),
            details: ask.details.map(Into::into),
            hold_millis: i64::try_from(ask.hold.as_millis()).unwrap_or(i64::MAX),
        }
    }
}

impl From<Request<wire::ConfirmRequest>> for ReservationRef {
    fn from(request: Request<wire::ConfirmRequest>) -> Self {
        Self {
            forwarded: is_forwarded(&request),
            id: request.into_inner().id,
        }
    }
}

impl From<Request<wire::ReleaseRequest>> for ReservationRef {
    fn from(request: Request<wire::ReleaseRequest>) -> Self {
        Self {
            forwarded: is_forwarded(&request),
            id: request.into_inner().id,
        }
    }
}

impl From<Reserved> for wire::ReserveResponse {
    fn from(reserved: Reserved) -> Self {
        Self {
            id: reserved.id,
            annotations: reserved.annotations,
            expires: reserved.expires.map(Into::into),
        }
    }
}

impl From<wire::ReserveResponse> for Reserved {
    fn from(answer: wire::ReserveResponse) -> Self {
        Self {
            id: answer.id,
            annotations: answer.annotations,
            expires: answer.expires.and_then(|t| SystemTime::try_from(t).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_is_passed_on_stays_the_same() {
        let ask = ReservationRequest {
            workload: Reference::pod("ml", "train-0"),
            uid: "u".into(),
            node: "n1".into(),
            rule: Rule {
                name: "gpu-slice".into(),
                request: "250m".into(),
                limit: "125m".into(),
            },
            details: Some(Workload {
                uid: "u".into(),
                labels: [("app".to_owned(), "train".to_owned())].into(),
                annotations: [("a".to_owned(), "b".to_owned())].into(),
                requests: [("cpu".to_owned(), "1".to_owned())].into(),
                resource_claims: vec!["gpu".to_owned()],
            }),
            hold: Duration::from_millis(1500),
            forwarded: true,
        };
        let mut request = Request::new(wire::ReserveRequest::from(ask.clone()));
        add_forwarded_metadata(&mut request);
        assert_eq!(ReservationRequest::from(request), ask);
    }

    #[test]
    fn a_hold_is_never_longer_than_agreed() {
        for (asked, granted) in [
            (1, Duration::from_millis(1)),
            (0, MAX_HOLD),
            (-5, MAX_HOLD),
            (30_000, MAX_HOLD),
            (i64::MAX, MAX_HOLD),
        ] {
            let hold_millis = asked;
            let request = wire::ReserveRequest {
                hold_millis,
                ..wire::ReserveRequest::default()
            };
            assert_eq!(
                ReservationRequest::from(Request::new(request)).hold,
                granted,
                "{asked}"
            );
        }
    }

    #[test]
    fn errors_survive_being_passed_on() {
        let errors = [
            AllocatorError::BadRule("a".into()),
            AllocatorError::Exhausted("b".into()),
            AllocatorError::Expired("c".into()),
            AllocatorError::Unavailable("d".into()),
        ];
        for error in errors {
            assert_eq!(AllocatorError::from(Status::from(error.clone())), error);
        }
    }
}
