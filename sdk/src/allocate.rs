//! Requests and answers of an allocator.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use tautline_proto::{MAX_HOLD, allocator as wire};
use tautline_types::Reference;
use tonic::{Code, Request, Status, metadata::MetadataValue};

use crate::types::{Rule, Workload, reference, target};

/// The metadata of a call that another replica forwarded.
const FORWARDED: &str = "tautline-forwarded";

/// The request to reserve a rule's request for a pod on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationRequest {
    /// The pod.
    pub workload: Reference,
    /// The pod's UID.
    pub uid: String,
    /// The node of the coming Binding.
    pub node: String,
    /// The rule.
    pub rule: Rule,
    /// The pod's metadata and requests; `None` from callers that do not send them.
    pub details: Option<Workload>,
    /// The time to hold the reservation; by default, and at most, [`MAX_HOLD`].
    pub hold: Duration,
    /// True if another replica forwarded the call; do not forward it again.
    pub forwarded: bool,
}

/// A reference to a reservation, in Confirm and Release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationRef {
    /// The reservation's [`id`](Reserved::id).
    pub id: String,
    /// True if another replica forwarded the call; do not forward it again.
    pub forwarded: bool,
}

/// A reservation that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// The id of the reservation in Confirm and Release; it is unique for all time.
    pub id: String,
    /// The annotations to write on the pod with the Binding.
    pub annotations: BTreeMap<String, String>,
    /// The end of the reservation unless it is confirmed, for people: clocks may differ.
    pub expires: Option<SystemTime>,
}

/// The error of a failed Reserve, Confirm or Release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocatorError {
    /// The rule's request or limit is invalid.
    #[error("{0}")]
    BadRule(String),
    /// The node has too little left.
    #[error("{0}")]
    Exhausted(String),
    /// The reservation to confirm has ended.
    #[error("{0}")]
    Expired(String),
    /// The allocator cannot reserve at the moment (starting, no leader); callers may retry.
    #[error("not now: {0}")]
    Unavailable(String),
    /// The allocator has an internal error.
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

/// The error that another replica returned.
impl From<Status> for AllocatorError {
    fn from(status: Status) -> Self {
        let text = status.message().to_owned();
        // The transport made this status: no replica answered.
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

/// Marks a call as forwarded, so that the receiving replica does not forward it again.
pub fn add_forwarded_metadata<T>(request: &mut Request<T>) {
    let value = MetadataValue::from_static("true");
    request.metadata_mut().insert(FORWARDED, value);
}

fn is_forwarded<T>(request: &Request<T>) -> bool {
    request.metadata().contains_key(FORWARDED)
}

impl From<Request<wire::ReserveRequest>> for ReservationRequest {
    fn from(request: Request<wire::ReserveRequest>) -> Self {
        let forwarded = is_forwarded(&request);
        let request = request.into_inner();
        let hold = match u64::try_from(request.hold_millis) {
            Ok(millis @ 1..) => Duration::from_millis(millis).min(MAX_HOLD),
            // The maximum is safe: it gives no grant twice.
            _ => MAX_HOLD,
        };
        Self {
            workload: reference(request.workload.unwrap_or_default()),
            uid: request.uid,
            node: request.node,
            rule: request.rule.unwrap_or_default().into(),
            details: request.details.map(Workload::from),
            hold,
            forwarded,
        }
    }
}

/// Makes the message to forward to another replica; mark the call with [`add_forwarded_metadata`].
impl From<ReservationRequest> for wire::ReserveRequest {
    fn from(request: ReservationRequest) -> Self {
        Self {
            workload: Some(target(request.workload)),
            uid: request.uid,
            node: request.node,
            rule: Some(request.rule.into()),
            details: request.details.map(Into::into),
            hold_millis: i64::try_from(request.hold.as_millis()).unwrap_or(i64::MAX),
        }
    }
}

impl ReservationRef {
    pub(crate) fn new<T>(request: Request<T>, id: impl FnOnce(T) -> String) -> Self {
        Self {
            forwarded: is_forwarded(&request),
            id: id(request.into_inner()),
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
    use tautline_types::ContainerKind;

    use super::*;
    use crate::types::Container;

    #[test]
    fn reserve_request_survives_forwarding() {
        let original = ReservationRequest {
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
                containers: vec![Container {
                    kind: ContainerKind::Sidecar,
                    requests: [("tautline.io/gpu-milli".to_owned(), "250".to_owned())].into(),
                }],
            }),
            hold: Duration::from_millis(1500),
            forwarded: true,
        };
        let mut request = Request::new(wire::ReserveRequest::from(original.clone()));
        add_forwarded_metadata(&mut request);
        assert_eq!(ReservationRequest::from(request), original);
    }

    #[test]
    fn hold_is_limited_to_max_hold() {
        for (requested, granted) in [
            (1, Duration::from_millis(1)),
            (0, MAX_HOLD),
            (-5, MAX_HOLD),
            (30_000, MAX_HOLD),
            (i64::MAX, MAX_HOLD),
        ] {
            let hold_millis = requested;
            let request = wire::ReserveRequest {
                hold_millis,
                ..wire::ReserveRequest::default()
            };
            assert_eq!(
                ReservationRequest::from(Request::new(request)).hold,
                granted,
                "{requested}"
            );
        }
    }

    #[test]
    fn allocator_error_survives_forwarding() {
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
