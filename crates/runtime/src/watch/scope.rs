//! Which objects of a kind are followed.

use tautline_core::selector_union::SelectorUnion;

/// What a list or a watch asks for, by its selectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selectors {
    pub(super) fields: Option<&'static str>,
    pub(super) labels: Option<String>,
}

/// All objects of a kind, or a part of the pods. What is followed only ever gets wider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Pods that have a node, and labels that are asked for.
    Selected(SelectorUnion),
    /// Pods that have a node.
    Placed,
    All,
}

const PLACED: Option<&str> = Some("spec.nodeName!=");
const WAITING: Option<&str> = Some("spec.nodeName=");

impl Scope {
    pub(super) fn selected(union: &SelectorUnion) -> Self {
        match union.is_everything() {
            true => Self::Placed,
            false => Self::Selected(union.clone()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Selected(union) if union.is_empty())
    }

    pub(super) fn selectors(&self) -> Selectors {
        let labels = match self {
            Self::Selected(union) => Some(union.to_query()),
            Self::Placed | Self::All => None,
        };
        let fields = PLACED.filter(|_| *self != Self::All);
        Selectors { fields, labels }
    }

    /// What is followed next on the way to what is wanted. Pods that wait come after all
    /// that have a node: who finds a node for them has to know what is on it.
    pub(super) fn next_step_to(&self, wanted: &Self) -> Self {
        match (self, wanted) {
            (Self::Selected(_), Self::All) => Self::Placed,
            _ => wanted.clone(),
        }
    }

    /// What `wider` has beside this, if a selector can say it.
    pub(super) fn remainder(&self, wider: &Self) -> Option<Selectors> {
        match (self, wider) {
            (Self::Selected(mine), Self::Selected(wider)) => {
                let labels = Some(mine.difference(wider)?.to_query());
                let fields = PLACED;
                Some(Selectors { fields, labels })
            }
            (Self::Placed, Self::All) => Some(Selectors {
                fields: WAITING,
                labels: None,
            }),
            _ => None,
        }
    }
}
