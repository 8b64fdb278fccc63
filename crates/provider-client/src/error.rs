use std::sync::Arc;

use tautline_core::planning::code;
use tautline_proto::endpoint_cost::MalformedMessage;

/// The reason why a call has no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The provider has no ready address.
    #[error("no ready address")]
    NotReady,
    /// The provider was not called: the circuit breakers of all its addresses are open.
    #[error("not called: {0}")]
    BreakerOpen(String),
    /// The provider was not called: its namespace has used up its share of kube-scheduler's time.
    #[error(
        "not called: the providers of namespace {0} have taken more than their share of \
         kube-scheduler's time; see --untrusted-share"
    )]
    OverBudget(Arc<str>),
    /// The provider was not called: the configuration does not allow it.
    #[error("not called: {0}")]
    NotAllowed(String),
    /// The provider gave no answer before the deadline; the text names the address.
    #[error("{0}")]
    Timeout(String),
    /// The answer is malformed or too large.
    #[error("{0}")]
    BadAnswer(String),
    /// The call failed, or the provider returned an error.
    #[error("{0}")]
    Failed(String),
}

impl From<MalformedMessage> for CallError {
    fn from(error: MalformedMessage) -> Self {
        Self::BadAnswer(format!("malformed answer: {error}"))
    }
}

impl CallError {
    /// Hides details of a tenant's address from the tenant: Tautline calls it from its own network.
    pub(crate) fn without_details(self, external: bool) -> Self {
        let hidden = |what: &str| format!("{what}; the log has the cause, at the level debug");
        match self {
            Self::Timeout(_) | Self::BadAnswer(_) | Self::Failed(_) if external => {
                Self::Failed(hidden("the provider gave no usable answer"))
            }
            Self::Timeout(_) => Self::Timeout(hidden("no answer in time")),
            Self::BadAnswer(_) => Self::BadAnswer(hidden("the answer was malformed")),
            Self::Failed(_) => Self::Failed(hidden("the call failed")),
            Self::BreakerOpen(_) => Self::BreakerOpen(hidden("it failed too often just now")),
            other => other,
        }
    }

    /// The stable reason code, one of [`code`].
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotReady => code::NO_ADDRESS,
            Self::BreakerOpen(_) => code::BREAKER_OPEN,
            Self::OverBudget(_) => code::OVER_BUDGET,
            Self::NotAllowed(_) => code::NOT_ALLOWED,
            Self::Timeout(_) => code::TIMEOUT,
            Self::BadAnswer(_) => code::BAD_ANSWER,
            Self::Failed(_) => code::FAILED,
        }
    }
}
