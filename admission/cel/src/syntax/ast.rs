//! Syntax trees. Every node stores its depth, so that the parser builds no tree deeper than
//! [`MAX_DEPTH`].

use crate::value::Value;

/// The most levels of an expression. A recursion over them fits a stack of 2 MiB in an unoptimised
/// build. Kubernetes allows 250.
pub(crate) const MAX_DEPTH: u16 = 100;

#[derive(Debug)]
pub(crate) struct Node {
    /// The byte offset in the source.
    pub at: u32,
    /// The number of levels of the tree from this node down.
    pub depth: u16,
    pub kind: NodeKind,
}

/// The kind of a node. Operators are calls with names such as `_+_`.
#[derive(Debug)]
pub(crate) enum NodeKind {
    Literal(Value),
    Name(String),
    Select {
        operand: Box<Node>,
        field: String,
        optional: bool,
    },
    Call {
        target: Option<Box<Node>>,
        name: String,
        arguments: Vec<Node>,
    },
    /// `a && b && ..` or, with `any`, `a || b || ..`
    Logic {
        any: bool,
        terms: Vec<Node>,
    },
    List(Vec<Element>),
    Map(Vec<(Node, Element)>),
    Struct {
        name: String,
        fields: Vec<(String, Element)>,
    },
}

/// An element of a literal. If it is written with `?` (`optional`), an empty optional is left out.
#[derive(Debug)]
pub(crate) struct Element {
    pub node: Node,
    pub optional: bool,
}

impl NodeKind {
    /// Returns the nodes one level below. The target of a call is the first.
    pub(crate) fn parts(&self) -> Vec<&Node> {
        match self {
            Self::Literal(_) | Self::Name(_) => Vec::new(),
            Self::Select { operand, .. } => vec![operand],
            Self::Call {
                target, arguments, ..
            } => target.as_deref().into_iter().chain(arguments).collect(),
            Self::Logic { terms, .. } => terms.iter().collect(),
            Self::List(all) => all.iter().map(|each| &each.node).collect(),
            Self::Map(entries) => entries
                .iter()
                .flat_map(|(key, value)| [key, &value.node])
                .collect(),
            Self::Struct { fields, .. } => fields.iter().map(|(_, field)| &field.node).collect(),
        }
    }

    pub(crate) fn depth(&self) -> u16 {
        self.parts()
            .iter()
            .map(|node| node.depth)
            .max()
            .unwrap_or(0)
    }
}

impl Node {
    /// Returns the dotted name that the node spells, such as `a.b.c`; `None` if it does not spell
    /// one.
    pub(crate) fn qualified(&self) -> Option<String> {
        match &self.kind {
            NodeKind::Name(name) => Some(name.clone()),
            NodeKind::Select {
                operand,
                field,
                optional: false,
            } => {
                let mut name = operand.qualified()?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}
