use std::sync::Arc;

use tautline_core::quantity;

use crate::gpu_request::{Amount, GpuRequest};

/// The GPUs that a pod requests, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSummary {
    /// The requested GPUs, such as `2 whole cards` or `250m of one card`; `None`: no GPU is
    /// requested.
    pub gpu: Option<String>,
    /// The minimum when the node degrades, in the same form.
    pub minimum: Option<String>,
    /// The parts of product names that a card may have; empty: any card.
    pub models: Arc<[Arc<str>]>,
    /// True if the rule states the request; otherwise the pod does.
    pub by_rule: bool,
    /// The requested CPU, in thousandths of a core.
    pub cpu_milli: i64,
    /// The requested main memory, in bytes.
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
        Amount::Cards(cards) => thousandths(cards.saturating_mul(1000)),
        Amount::Share(milli) => thousandths(*milli),
        Amount::Memory(bytes) => memory(*bytes),
        Amount::OfAgent(own) => match (own.milli, own.memory_gib) {
            (milli, 0) => thousandths(milli),
            (0, _) => memory(own.memory_bytes()),
            (milli, _) => format!(
                "{} or {}, the larger",
                thousandths(milli),
                memory(own.memory_bytes())
            ),
        },
        Amount::Units { resource, units } => format!("{units} {resource}"),
    })
}

fn memory(bytes: i64) -> String {
    let text = quantity::format_milli(bytes.saturating_mul(1000));
    format!("{text} memory of one card")
}

fn thousandths(milli: i64) -> String {
    let cards = |n: i64| format!("{n} whole card{}", if n == 1 { "" } else { "s" });
    match (milli / 1000, milli % 1000) {
        (0, share) => format!("{share}m of one card"),
        (whole, 0) => cards(whole),
        (whole, share) => format!("{} and {share}m of another", cards(whole)),
    }
}
