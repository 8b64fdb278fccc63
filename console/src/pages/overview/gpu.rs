use serde::Serialize;
use tautline_gpu_slice::report::{Amounts, Total};

/// All cards together; as `tautline gpu top` counts them.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gpu {
    pub cards: usize,
    pub unhealthy_cards: usize,
    pub held_milli: i64,
    pub idle_milli: i64,
    /// Idle thousandths that the next request is expected not to be able to use; absent while no
    /// requests are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub useless_milli: Option<i64>,
    /// GPUs of which only the number is known.
    pub counted_units: i64,
    pub counted_used_units: i64,
}

impl Gpu {
    pub fn new(totals: &[Total]) -> Self {
        let mut gpu = Self::default();
        let mut useless = Some(0);
        for total in totals {
            match &total.amounts {
                Amounts::Cards {
                    cards,
                    unhealthy_cards,
                    held_milli,
                    free_milli,
                    fragmented_milli,
                    ..
                } => {
                    gpu.cards += cards;
                    gpu.unhealthy_cards += unhealthy_cards;
                    gpu.held_milli += held_milli;
                    gpu.idle_milli += free_milli;
                    useless = useless.zip(*fragmented_milli).map(|(a, b)| a + b);
                }
                Amounts::Units {
                    units, used_units, ..
                } => {
                    gpu.counted_units = gpu.counted_units.saturating_add(*units);
                    gpu.counted_used_units = gpu.counted_used_units.saturating_add(*used_units);
                }
            }
        }
        gpu.useless_milli = useless.filter(|_| gpu.cards > 0);
        gpu
    }
}
