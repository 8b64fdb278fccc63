use std::sync::Arc;

use tautline_core::quantity;

use crate::gpu_request::{Amount, GpuRequest};

/// The GPUs that a pod requests, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSummary {
    /// Such as `2 whole cards` or `250m of one card`; `None`: no GPU is requested.
    pub gpu: Option<String>,
    /// The minimum when the node degrades, in the same form.
    pub minimum: Option<String>,
    /// Parts of product names; empty: any card.
    pub models: Arc<[Arc<str>]>,
    /// The rule states it; otherwise the pod does.
    pub by_rule: bool,
    /// Thousandths of a core.
    pub cpu_milli: i64,
    /// Main memory in bytes.
    pub memory_bytes: i64,
}

impl RequestSummary {
    pub(crate) fn new(request: &GpuRequest) -> Self {
        Self {
            gpu: text(&request.amount),
            minimum: request.minimum.as_ref().and_then(text),
            models: Arc::clone(&request.models),
            by_rule: request.by_rule,
            cpu_milli: request.cpu_milli,
            memory_bytes: request.memory_bytes,
        }
    }
}

fn text(amount: &Amount) -> Option<String> {
    Some(match amount {
        Amount::Nothing => return None,
        Amount::Cards(1) => "1 whole card".into(),
        Amount::Cards(cards) => format!("{cards} whole cards"),
        Amount::Share(milli) => format!("{milli}m of one card"),
        Amount::Memory(bytes) => {
            let text = quantity::format_milli(bytes.saturating_mul(1000));
            format!("{text} memory of one card")
        }
        Amount::Units { resource, units } => format!("{units} {resource}"),
    })
}
