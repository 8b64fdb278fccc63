//! Static types, and when one may stand for another: cel-go's rules, so that
//! what the server refuses at creation is refused here.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A static type, as the checker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Known only when the expression runs.
    Dyn,
    /// `null`
    Null,
    /// Booleans.
    Bool,
    /// Signed integers.
    Int,
    /// Unsigned integers.
    Uint,
    /// Floating-point numbers.
    Double,
    /// Strings.
    String,
    /// Bytes.
    Bytes,
    /// Points in time.
    Timestamp,
    /// Spans of time.
    Duration,
    /// Types as values.
    Type(Arc<Type>),
    /// Lists of one type.
    List(Arc<Type>),
    /// Maps from one type to one other.
    Map(Arc<Type>, Arc<Type>),
    /// Optional values of a type.
    Optional(Arc<Type>),
    /// A library's type without fields, by name.
    Opaque(&'static str),
    /// A library's type that may be null, by name; one with fields is in `records`.
    Record(&'static str),
    /// `Object{..}` and the types below it.
    Object {
        /// `Object.spec.containers`
        name: Arc<str>,
        /// In the spelling of 2024.
        old_spelling: bool,
    },
    /// A type yet to be found, numbered; in declarations `A`, `B`.
    Unknown(u32),
}

impl Type {
    /// A list of this.
    pub(super) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    /// An optional of this.
    pub(super) fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// A map.
    pub(super) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    fn parts(&self) -> [Option<&Self>; 2] {
        match self {
            Self::List(of) | Self::Optional(of) | Self::Type(of) => [Some(of), None],
            Self::Map(key, value) => [Some(key), Some(value)],
            _ => [None, None],
        }
    }

    /// The same type with its parts changed.
    pub(super) fn with(&self, change: &mut impl FnMut(&Self) -> Self) -> Self {
        match self {
            Self::List(of) => Self::list(change(of)),
            Self::Optional(of) => Self::optional(change(of)),
            Self::Type(of) => Self::Type(Arc::new(change(of))),
            Self::Map(key, value) => Self::map(change(key), change(value)),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Null => f.write_str("null_type"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::Type(of) => write!(f, "type({of})"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Opaque(name) | Self::Record(name) => f.write_str(name),
            Self::Object { name, .. } => f.write_str(name),
            Self::Unknown(number) => write!(f, "_{number}"),
        }
    }
}

/// Steps over types that one expression may take: a type can double with each
/// level of a literal `{x: x}`, and with each variable that is such a one.
const STEPS: u32 = 500_000;

/// What is known of the numbered types.
#[derive(Debug, Default)]
pub(super) struct Found {
    of: HashMap<u32, Type>,
    next: u32,
    /// What was known before, to go back to when a trial fails.
    trail: Vec<(u32, Option<Type>)>,
    steps: Cell<u32>,
}

impl Found {
    /// A type yet to be found.
    pub(super) fn fresh(&mut self) -> Type {
        self.next += 1;
        Type::Unknown(self.next)
    }

    /// Whether the types are too large to go on; what was found is then worth
    /// nothing.
    pub(super) fn exhausted(&self) -> bool {
        self.steps.get() >= STEPS
    }

    /// What the type is, one step.
    pub(super) fn look(&self, of: &Type) -> Type {
        self.steps.set(self.steps.get().saturating_add(1));
        let mut here = of.clone();
        while let Type::Unknown(number) = here {
            match self.of.get(&number) {
                Some(found) => here = found.clone(),
                None => break,
            }
        }
        here
    }

    /// The type with everything known put in; what stays unknown is dyn if so asked.
    pub(super) fn resolve(&self, of: &Type, to_dyn: bool) -> Type {
        match self.look(of) {
            Type::Unknown(_) if to_dyn => Type::Dyn,
            _ if self.exhausted() => Type::Dyn,
            other => other.with(&mut |part| self.resolve(part, to_dyn)),
        }
    }

    /// The parameters of a declaration replaced by fresh unknowns.
    pub(super) fn fresh_copy(&mut self, of: &Type, names: &mut HashMap<u32, Type>) -> Type {
        match of {
            Type::Unknown(number) => names.entry(*number).or_insert_with(|| self.fresh()).clone(),
            other => other.with(&mut |part| self.fresh_copy(part, names)),
        }
    }

    /// Whether every one of the types may stand for its counterpart; learns from
    /// it only if so.
    pub(super) fn fits_all(&mut self, wanted: &[Type], given: &[Type]) -> bool {
        self.trail.clear();
        let fits = wanted.len() == given.len()
            && wanted
                .iter()
                .zip(given)
                .all(|(wanted, given)| self.fits(given, wanted));
        if !fits {
            for (number, before) in std::mem::take(&mut self.trail).into_iter().rev() {
                match before {
                    Some(before) => self.of.insert(number, before),
                    None => self.of.remove(&number),
                };
            }
        }
        fits
    }

    fn learn(&mut self, number: u32, of: Type) {
        let before = self.of.insert(number, of);
        self.trail.push((number, before));
    }

    /// Whether the first type may stand for the second.
    fn fits(&mut self, a: &Type, b: &Type) -> bool {
        self.steps.set(self.steps.get().saturating_add(1));
        if self.exhausted() {
            return false;
        }
        if matches!(b, Type::Unknown(_)) {
            let (valid, known) = self.substitutes(a, b);
            if valid || known {
                return valid;
            }
        }
        if matches!(a, Type::Unknown(_)) {
            return self.substitutes(b, a).0;
        }
        match (a, b) {
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Optional(_)
                    | Type::Opaque(_)
                    | Type::Record(_)
                    | Type::Object { .. }
                    | Type::Duration
                    | Type::Timestamp
            ),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.fits(a, b)
            }
            (Type::Map(a, c), Type::Map(b, d)) => self.fits(a, b) && self.fits(c, d),
            (Type::Object { name: a, .. }, Type::Object { name: b, .. }) => a == b,
            _ => a == b,
        }
    }

    /// Whether `a` may be what the unknown `b` is, and whether `b` was known.
    fn substitutes(&mut self, a: &Type, b: &Type) -> (bool, bool) {
        if a == b {
            return (true, true);
        }
        let Type::Unknown(number) = b else {
            return (false, false);
        };
        if let Some(known) = self.of.get(number).cloned() {
            if *a == known {
                return (true, true);
            }
            if self.fits(a, &known) {
                let general = if less_specific(a, &known) {
                    a.clone()
                } else {
                    known
                };
                if !self.mentions(&general, *number) {
                    self.learn(*number, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.mentions(a, *number) {
            return (false, false);
        }
        self.learn(*number, a.clone());
        (true, false)
    }

    fn mentions(&self, of: &Type, number: u32) -> bool {
        match self.look(of) {
            Type::Unknown(other) => other == number,
            _ if self.exhausted() => true,
            other => other
                .parts()
                .into_iter()
                .flatten()
                .any(|part| self.mentions(part, number)),
        }
    }

    /// The type of a literal's elements once one more is among them; none if
    /// the two differ.
    pub(super) fn join(&mut self, before: Option<Type>, next: &Type) -> Option<Type> {
        let Some(before) = before else {
            return Some(next.clone());
        };
        if !self.fits_all(std::slice::from_ref(next), std::slice::from_ref(&before)) {
            return None;
        }
        Some(if less_specific(&before, next) {
            before
        } else {
            next.clone()
        })
    }
}

/// Whether `a` says no more than `b`.
fn less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Unknown(_), _) => true,
        (_, Type::Dyn | Type::Unknown(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
            less_specific(a, b)
        }
        (Type::Map(a, c), Type::Map(b, d)) => less_specific(a, b) && less_specific(c, d),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}
