use tautline_core::{model::MAX_CONTAINERS, quantity};
use tautline_gpu_placement::{PlacementError, Shape, Shortage, inventory::CardPool};

/// The reason why a node cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// A stable reason code in CamelCase, such as `GpuBusy`.
    pub code: &'static str,
    /// A text for people, which may have figures.
    pub detail: String,
    /// True if the removal of pods from the node could make it usable.
    pub freeable: bool,
    /// The closeness to a fit, from 0 (the node has no such cards) to 9 (the cards are only busy).
    /// The closest pool gives the reason.
    pub(crate) closeness: u8,
}

impl Unfit {
    pub(crate) fn new(closeness: u8, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            freeable: false,
            closeness,
        }
    }

    pub(crate) fn busy(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            freeable: true,
            ..Self::new(9, code, detail)
        }
    }

    pub(crate) fn unknown_node() -> Self {
        Self::new(1, "UnknownNode", "not in the provider's view yet")
    }

    pub(crate) fn wrong_model(product: &str, models: &[std::sync::Arc<str>]) -> Self {
        let detail = format!("{product:?} is not one of {}", models.join("|"));
        Self::new(6, "WrongModel", detail)
    }

    pub(crate) fn not_requested(units: i64, resource: &str) -> Self {
        let detail = format!("the pod must request {units} {resource}");
        Self::new(5, "NotRequested", detail)
    }

    pub(crate) fn not_offered() -> Self {
        let detail = "its agent is away, or another device plugin has the cards: \
                      tautline.io/gpu-milli is not allocatable";
        Self::new(8, "GpuNotOffered", detail)
    }

    /// Returns the reason that the pod's cards cannot be split among its containers. `left` has the
    /// thousandths of the cards that the containers before the refused one leave.
    pub(crate) fn container_split(asks: u32, left: &[u16]) -> Self {
        let left: Vec<String> = left.iter().map(|milli| format!("{milli}m")).collect();
        let left = if left.is_empty() {
            "none".to_owned()
        } else {
            left.join(" and ")
        };
        let detail = format!(
            "a container needs {asks}m, with a part of a card on one card, and the pod's other \
             containers leave it {left}: request whole cards, or amounts that fill cards together"
        );
        Self::new(8, "ContainerSplit", detail)
    }

    pub(crate) fn many_containers() -> Self {
        let detail = format!("more than {MAX_CONTAINERS} containers of the pod request cards");
        Self::new(8, "ContainerSplit", detail)
    }

    pub(crate) fn no_shared_gpu() -> Self {
        Self::new(1, "NoSharedGpu", "no card of it is shared")
    }

    pub(crate) fn instances_only(resource: &str) -> Self {
        let detail = format!("its {resource} are MIG instances (strategy single), no cards");
        Self::new(2, "NoSuchGpu", detail)
    }

    pub(crate) fn whole_only() -> Self {
        let detail = "its cards are given whole: MIG is off, and the node's limits are mig";
        Self::new(2, "NoSharedGpu", detail)
    }

    pub(crate) fn from_refusal(pool: &CardPool, shape: &Shape, refusal: PlacementError) -> Self {
        let short = match refusal {
            PlacementError::UnknownNode => return Self::unknown_node(),
            PlacementError::OtherKind => {
                return Self::wrong_model(&pool.kind.product, &shape.models);
            }
            PlacementError::Shortage(short) => short,
        };
        let wanted = quantity::format_milli(shape.milli());
        match short {
            Shortage::Cpu => Self::busy("CpuShort", "too little CPU is free"),
            Shortage::Memory => Self::busy("MemoryShort", "too little memory is free"),
            Shortage::Gpu => {
                let cards = pool.cards.iter().filter(|c| c.fault.is_none()).count();
                let needed = usize::from(shape.whole) + usize::from(shape.share > 0);
                if cards < needed {
                    let detail = format!("has {cards} cards, {needed} wanted");
                    return Self::new(7, "NoSuchGpu", detail);
                }
                let idle: i64 = pool.cards.iter().map(|c| i64::from(c.left_milli())).sum();
                let free = quantity::format_milli(idle);
                if idle >= shape.milli() {
                    let detail = format!("{free} cards free in parts, {wanted} wanted");
                    return Self::busy("GpuFragmented", detail);
                }
                let detail = format!("{free} of {cards} cards free, {wanted} wanted");
                Self::busy("GpuBusy", detail)
            }
        }
    }
}
