//! Infers types by cel-go's rules, so that an expression whose types Kubernetes refuses does not
//! compile here either.

use std::cell::Cell;
use std::collections::HashMap;

use crate::types::Type;

/// The most inference steps of an expression. Without a limit they could grow exponentially: a type
/// can double with each level of a literal `{x: x}` and with each variable that holds such a
/// literal.
const MAX_INFERENCE_STEPS: u32 = 500_000;

#[derive(Debug, Default)]
pub(crate) struct Inference {
    of: HashMap<u32, Type>,
    next: u32,
    /// The earlier types of type variables, by number. They are restored when an overload does not
    /// match.
    trail: Vec<(u32, Option<Type>)>,
    steps: Cell<u32>,
}

impl Inference {
    pub(crate) fn fresh(&mut self) -> Type {
        self.next += 1;
        Type::Unknown(self.next)
    }

    /// Returns whether the types are too large. The inference is then incomplete.
    pub(crate) fn exhausted(&self) -> bool {
        self.steps.get() >= MAX_INFERENCE_STEPS
    }

    /// Returns the type inferred for a type variable, or another type unchanged. Its parts may
    /// still be variables.
    pub(crate) fn head(&self, of: &Type) -> Type {
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

    /// Returns the type with all type variables replaced. With `to_dyn`, variables whose type is
    /// unknown become `dyn`.
    pub(crate) fn resolve(&self, of: &Type, to_dyn: bool) -> Type {
        match self.head(of) {
            Type::Unknown(_) if to_dyn => Type::Dyn,
            _ if self.exhausted() => Type::Dyn,
            other => other.with(&mut |part| self.resolve(part, to_dyn)),
        }
    }

    /// Returns a copy of a declared type with fresh type variables. `names` maps the declared
    /// variables to the fresh ones.
    pub(crate) fn fresh_copy(&mut self, of: &Type, names: &mut HashMap<u32, Type>) -> Type {
        match of {
            Type::Unknown(number) => names.entry(*number).or_insert_with(|| self.fresh()).clone(),
            other => other.with(&mut |part| self.fresh_copy(part, names)),
        }
    }

    /// Returns whether every given type is assignable to its wanted counterpart. If one is not, the
    /// types inferred on the way are discarded.
    pub(crate) fn all_assignable(&mut self, wanted: &[Type], given: &[Type]) -> bool {
        self.trail.clear();
        let fits = wanted.len() == given.len()
            && wanted
                .iter()
                .zip(given)
                .all(|(wanted, given)| self.is_assignable(given, wanted));
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

    fn bind(&mut self, number: u32, of: Type) {
        let before = self.of.insert(number, of);
        self.trail.push((number, before));
    }

    /// Returns whether type `a` is assignable to type `b`.
    fn is_assignable(&mut self, a: &Type, b: &Type) -> bool {
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
                self.is_assignable(a, b)
            }
            (Type::Map(a, c), Type::Map(b, d)) => {
                self.is_assignable(a, b) && self.is_assignable(c, d)
            }
            (Type::Object { name: a, .. }, Type::Object { name: b, .. }) => a == b,
            _ => a == b,
        }
    }

    /// Returns whether the type variable `b` may have the type `a`, and whether the type of `b` was
    /// known before.
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
            if self.is_assignable(a, &known) {
                let general = if less_specific(a, &known) {
                    a.clone()
                } else {
                    known
                };
                if !self.mentions(&general, *number) {
                    self.bind(*number, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.mentions(a, *number) {
            return (false, false);
        }
        self.bind(*number, a.clone());
        (true, false)
    }

    fn mentions(&self, of: &Type, number: u32) -> bool {
        match self.head(of) {
            Type::Unknown(other) => other == number,
            _ if self.exhausted() => true,
            other => other
                .parts()
                .into_iter()
                .flatten()
                .any(|part| self.mentions(part, number)),
        }
    }

    /// Returns the type of a literal's elements together with one more; `None` if the types differ.
    pub(crate) fn join(&mut self, before: Option<Type>, next: &Type) -> Option<Type> {
        let Some(before) = before else {
            return Some(next.clone());
        };
        if !self.all_assignable(std::slice::from_ref(next), std::slice::from_ref(&before)) {
            return None;
        }
        Some(if less_specific(&before, next) {
            before
        } else {
            next.clone()
        })
    }
}

/// Returns whether `a` is at most as specific as `b`.
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
