use tautline_core::selector_union::SelectorUnion;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selectors {
    pub(super) fields: Option<&'static str>,
    pub(super) labels: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Pods with a node that the union selects.
    Selected(SelectorUnion),
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

    /// Waiting pods come after all pods with a node: placing them requires the pods on each node.
    pub(super) fn next_step_to(&self, wanted: &Self) -> Self {
        match (self, wanted) {
            (Self::Selected(_), Self::All) => Self::Placed,
            _ => wanted.clone(),
        }
    }

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
