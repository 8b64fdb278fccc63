//! Checked expressions with resolved names: the evaluator's input.

use std::sync::Arc;

use crate::library::declaration::{Implementation, Overload};
use crate::value::Value;

#[derive(Debug)]
pub(crate) enum Ir {
    Constant(Value),
    /// A loop's variable, by its slot on the stack.
    Local(usize),
    Global(Arc<str>),
    Select {
        operand: Box<Ir>,
        field: Arc<str>,
        mode: SelectMode,
    },
    Call {
        dispatch: Dispatch,
        arguments: Vec<Ir>,
    },
    Logic {
        any: bool,
        terms: Vec<Ir>,
    },
    /// Condition, then, otherwise.
    Choice(Box<[Ir; 3]>),
    /// `.or(..)`, or with `unwrap` `.orValue(..)`: the second if the first is empty.
    OrElse {
        both: Box<[Ir; 2]>,
        unwrap: bool,
    },
    List(Vec<Item>),
    Map(Vec<(Ir, Item)>),
    Object {
        type_name: Arc<str>,
        legacy_spelling: bool,
        fields: Vec<(Arc<str>, Item)>,
    },
    Patch(Vec<(Arc<str>, Item)>),
    Loop(Box<Loop>),
    /// `.optMap(v, ..)`, or if flat `.optFlatMap(v, ..)`: target and body.
    OptionalMap {
        both: Box<[Ir; 2]>,
        flat: bool,
    },
}

/// An element of a literal, left out if it is an empty optional.
#[derive(Debug)]
pub(crate) struct Item {
    pub ir: Ir,
    pub optional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectMode {
    /// `a.b`
    Plain,
    /// `a.?b`
    Optional,
    /// `has(a.b)`
    Test,
}

/// The function that a call runs: one, or the first overload that accepts the arguments.
pub(crate) enum Dispatch {
    Static(Implementation),
    Dynamic(Vec<&'static Overload>),
}

impl std::fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dispatch")
    }
}

/// A comprehension. Its variables are the next slots on the stack.
#[derive(Debug)]
pub(crate) struct Loop {
    pub kind: LoopKind,
    pub range: Ir,
    /// Index and element, or key and value, instead of element or key.
    pub two: bool,
    pub filter: Option<Ir>,
    pub body: Ir,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    /// `filter`: the elements for which the body holds.
    Filter,
    /// `map`, `transformList`
    List,
    /// `transformMap`
    Map,
    /// `transformMapEntry`
    Entries,
    /// `sortBy`: the elements ordered by the body's value.
    Sort,
}

/// Levels of an expression, its variables' included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Levels {
    pub nested: u16,
    /// Of lists, maps, objects and optionals that it may wrap around its inputs.
    pub built: u16,
}
