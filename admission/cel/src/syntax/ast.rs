//! Syntax trees. A node has its offset and depth, so that no tree deeper than
//! [`MAX_DEPTH`] is built.

use crate::value::Value;

/// Levels of the deepest expression: a recursion over it, unoptimised, fits a stack of
/// 2 MiB. Kubernetes allows 250.
pub(crate) const MAX_DEPTH: u16 = 100;

#[derive(Debug)]
pub(crate) struct Node {
    /// Byte offset in the source.
    pub at: u32,
    /// Levels from here down, itself included.
    pub depth: u16,
    pub kind: NodeKind,
}

/// The kinds of nodes. Operators are calls named as `_+_`.
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

/// An element of a literal; with `?` it is left out if it is an empty optional.
#[derive(Debug)]
pub(crate) struct Element {
    pub node: Node,
    pub optional: bool,
}

impl NodeKind {
    /// The parts; the target of a call is the first.
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
    /// The dotted name this spells, if it is one: `a.b.c`.
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
