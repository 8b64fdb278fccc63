use std::time::Duration;

/// The reason why no pod of a violated binding can be evicted at the moment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{code}: {text}")]
pub(crate) struct Refusal {
    pub code: &'static str,
    pub text: String,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    pub(crate) fn lost_lead() -> Self {
        Self::new("Stale", "this replica leads no more")
    }

    pub(crate) fn retry_after(&self) -> Duration {
        match self.code {
            // These conditions usually end soon.
            "ReplicaDown" | "Stale" => Duration::from_secs(2),
            "DisruptionBudget" => Duration::from_secs(5),
            _ => Duration::from_secs(10),
        }
    }
}

/// The answer of the API server to an eviction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EvictAnswer {
    Done,
    Refused(Refusal),
    /// The request failed with this error, but the pod may have been evicted.
    Lost(String),
}

impl EvictAnswer {
    pub(crate) fn from_status(id: &str, status: u16, message: &str) -> Self {
        let refused = |code, text| Self::Refused(Refusal::new(code, text));
        match status {
            429 => refused("DisruptionBudget", format!("{id}: {message}")),
            404 | 409 => refused("Stale", format!("{id} is gone, or another")),
            400..500 => refused("Failed", format!("{id}: {message}")),
            _ => Self::Lost(message.to_owned()),
        }
    }
}
