//! Why a node cannot serve a need.

use tautline_core::quantity;
use tautline_gpu_placement::{Refusal, Shape, Short, inventory::Pool};

/// Why a node cannot serve a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct No {
    /// The reason code, `GpuBusy`.
    pub code: &'static str,
    /// The same with figures.
    pub detail: String,
    /// It could if pods on it had gone.
    pub freeable: bool,
    /// Of several pools the one that came closest gives the reason.
    pub(crate) closeness: u8,
}

impl No {
    pub(crate) fn unknown_node() -> Self {
        no(1, "UnknownNode", "not in the provider's view yet")
    }

    /// It has what is asked, and others hold it.
    pub(crate) fn busy(code: &'static str, detail: &str) -> Self {
        busy(code, detail.to_owned())
    }

    /// It has nothing of the kind.
    pub(crate) fn never(code: &'static str, detail: &str) -> Self {
        no(0, code, detail)
    }
}

/// How close a pool came, from 0 (it has nothing of the kind) to 9 (it is only busy).
pub(crate) fn no(closeness: u8, code: &'static str, detail: impl Into<String>) -> No {
    No {
        code,
        detail: detail.into(),
        freeable: false,
        closeness,
    }
}

/// It has what is asked, and others hold it.
pub(crate) fn busy(code: &'static str, detail: String) -> No {
    No {
        freeable: true,
        ..no(9, code, detail)
    }
}

/// What the board's refusal of a pool is to people.
pub(crate) fn refused(pool: &Pool, shape: &Shape, refusal: Refusal) -> No {
    let short = match refusal {
        Refusal::Unknown => return No::unknown_node(),
        Refusal::Kind => {
            let wanted = shape.models.join("|");
            let product = &pool.kind.product;
            return no(6, "WrongModel", format!("{product:?} is none of {wanted}"));
        }
        Refusal::Short(short) => short,
    };
    let wanted = quantity::format_milli(shape.milli());
    match short {
        Short::Cpu => busy("CpuShort", "too little CPU is free".into()),
        Short::Memory => busy("MemoryShort", "too little memory is free".into()),
        Short::Gpu => {
            let cards = pool.cards.iter().filter(|c| c.healthy).count();
            let needed = usize::from(shape.whole) + usize::from(shape.share > 0);
            if cards < needed {
                return no(
                    7,
                    "NoSuchGpu",
                    format!("has {cards} cards, {needed} wanted"),
                );
            }
            let idle: i64 = pool.cards.iter().map(|c| i64::from(c.left_milli())).sum();
            let free = quantity::format_milli(idle);
            if idle >= shape.milli() {
                let detail = format!("{free} cards free in parts, {wanted} wanted");
                return busy("GpuFragmented", detail);
            }
            busy(
                "GpuBusy",
                format!("{free} of {cards} cards free, {wanted} wanted"),
            )
        }
    }
}
