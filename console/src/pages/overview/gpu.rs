use serde::Serialize;
use tautline_gpu_slice::report::{Amounts, CardSums, Total};

/// The sums over all cards, as `tautline gpu top` counts them.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gpu {
    pub cards: usize,
    pub unhealthy_cards: usize,
    pub held_milli: i64,
    pub idle_milli: i64,
    /// The idle thousandths of cards that the next request is not expected to be able to use;
    /// absent while no requests are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub useless_milli: Option<i64>,
    /// The number of GPUs of which only the number is known.
    pub counted_units: i64,
    /// The number of these GPUs that are in use.
    pub counted_used_units: i64,
}

impl Gpu {
    pub fn new(totals: &[Total]) -> Self {
        let sums = CardSums::of_all(totals);
        let mut gpu = Self {
            cards: sums.cards,
            unhealthy_cards: sums.unhealthy_cards,
            held_milli: sums.held_milli,
            idle_milli: sums.free_milli,
            useless_milli: sums.fragmented_milli.filter(|_| sums.cards > 0),
            ..Self::default()
        };
        for total in totals {
            if let Amounts::Units {
                units, used_units, ..
            } = &total.amounts
            {
                gpu.counted_units = gpu.counted_units.saturating_add(*units);
                gpu.counted_used_units = gpu.counted_used_units.saturating_add(*used_units);
            }
        }
        gpu
    }
}
