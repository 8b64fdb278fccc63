//! Checked expressions, names resolved, as the evaluator takes them.

use std::sync::Arc;

use super::Value;
use super::declaration::{Native, Overload};

/// A checked part of an expression.
#[derive(Debug)]
pub(super) enum Ir {
    Constant(Value),
    /// A loop's variable, by its place on the stack.
    Local(usize),
    Global(Arc<str>),
    Select {
        operand: Box<Ir>,
        field: Arc<str>,
        mode: Mode,
    },
    Call {
        work: Work,
        arguments: Vec<Ir>,
    },
    Logic {
        any: bool,
        terms: Vec<Ir>,
    },
    /// Condition, then, otherwise.
    Choice(Box<[Ir; 3]>),
    /// `.or(..)`, or with `unwrap` `.orValue(..)`: the second only if the first is none.
    Otherwise {
        both: Box<[Ir; 2]>,
        unwrap: bool,
    },
    List(Vec<Item>),
    Map(Vec<(Ir, Item)>),
    Object {
        type_name: Arc<str>,
        old_spelling: bool,
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

/// An element of a literal, left out if optional and none.
#[derive(Debug)]
pub(super) struct Item {
    pub ir: Ir,
    pub optional: bool,
}

/// How a field is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// `a.b`
    Plain,
    /// `a.?b`
    Optional,
    /// `has(a.b)`
    Test,
}

/// What a call does: one function, or the first whose types fit.
pub(super) enum Work {
    One(Native),
    Of(Vec<&'static Overload>),
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Work")
    }
}

/// A comprehension. Its variables are the next places on the stack.
#[derive(Debug)]
pub(super) struct Loop {
    pub kind: LoopKind,
    pub range: Ir,
    /// Index and element, or key and value, instead of element or key.
    pub two: bool,
    pub filter: Option<Ir>,
    pub body: Ir,
}

/// The comprehensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopKind {
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
