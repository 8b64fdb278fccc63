//! Checked expressions with resolved names, which the evaluator takes as input.

use std::sync::Arc;

use crate::library::declaration::Overload;
use crate::value::Value;

#[derive(Debug)]
pub(crate) enum Ir {
    Constant(Value),
    /// A local variable, identified by its slot on the stack.
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
    /// `a ? b : c`: the condition and the two branches.
    Choice(Box<[Ir; 3]>),
    /// `.or(..)`, or `.orValue(..)` if `unwrap`. The second operand counts if the first is empty.
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
    /// `.optMap(v, ..)`, or `.optFlatMap(v, ..)` if `flat`, with the target and the body.
    OptionalMap {
        both: Box<[Ir; 2]>,
        flat: bool,
    },
}

/// An element of a literal. If `optional`, an empty optional is left out.
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

/// The function that a call runs: a fixed overload, or the first one that accepts the arguments.
pub(crate) enum Dispatch {
    Static(&'static Overload),
    Dynamic(Vec<&'static Overload>),
}

impl std::fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dispatch")
    }
}

/// A comprehension. Its variables take the next slots on the stack.
#[derive(Debug)]
pub(crate) struct Loop {
    pub kind: LoopKind,
    pub range: Ir,
    /// True if the variables are index and element, or key and value; otherwise there is one
    /// variable, the element or key.
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

/// The levels of an expression, including those of the variables it uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Levels {
    /// The levels of its syntax tree.
    pub nested: u16,
    /// The levels of lists, maps, objects and optionals that it may wrap around its inputs.
    pub built: u16,
}
