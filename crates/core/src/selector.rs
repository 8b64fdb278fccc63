//! Labels of Kubernetes objects, and label selectors.

use std::{fmt, sync::Arc};

use memchr::memchr;

/// An object's labels or annotations in one allocation: the index holds them for every pod.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Arc<str>);

impl Labels {
    pub(crate) fn packed_mut(&mut self) -> &mut Arc<str> {
        &mut self.0
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        let bytes = self.0.as_bytes();
        let end = |from: usize| Some(from + memchr(0, bytes.get(from..)?)?);
        let mut at = 0;
        loop {
            let key_end = end(at)?;
            let value_end = end(key_end + 1)?;
            if bytes.get(at..key_end) == Some(key.as_bytes()) {
                return self.0.get(key_end + 1..value_end);
            }
            at = value_end + 1;
        }
    }

    /// Joins a pair as [`packed`](Self::packed) returns it; `None` if it contains NUL, which no
    /// object's label can.
    pub(crate) fn pack(key: &str, value: &str) -> Option<Box<str>> {
        let sound = !key.contains('\0') && !value.contains('\0');
        sound.then(|| [key, "\0", value].concat().into())
    }

    /// Returns each pair as one text, with key and value separated by NUL.
    pub(crate) fn packed(&self) -> impl Iterator<Item = &str> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let key = rest.find('\0')?;
            let value = key + 1 + rest.get(key + 1..)?.find('\0')?;
            let pair = rest.get(..value);
            rest = rest.get(value + 1..)?;
            pair
        })
    }

    /// Returns all pairs, in their original order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.0.split_terminator('\0');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// Returns the size of the pairs in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut packed = String::new();
        for (k, v) in pairs {
            let (k, v) = (k.as_ref(), v.as_ref());
            if k.contains('\0') || v.contains('\0') {
                continue;
            }
            packed.extend([k, "\0", v, "\0"]);
        }
        Self(packed.into())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// A Kubernetes label selector: all parts must match; an empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The label keys and values that an object must have.
    pub match_labels: Vec<(String, String)>,
    /// The expressions that must match.
    pub match_expressions: Vec<Expression>,
}

/// One of a selector's `matchExpressions`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    /// The label's key.
    pub key: String,
    /// The comparison with the operands.
    pub operator: Operator,
    /// The operands; empty for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

/// The comparison of an [`Expression`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has another value.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// A malformed selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The operator is unknown.
    #[error("operator {0:?} is unknown; use In, NotIn, Exists or DoesNotExist")]
    Operator(String),
    /// The operator requires at least one value; holds the key and the operator.
    #[error("key {0:?}: {1} needs at least one value")]
    NoValues(String, &'static str),
    /// The operator does not allow values; holds the key and the operator.
    #[error("key {0:?}: {1} takes no values")]
    Values(String, &'static str),
}

impl Expression {
    /// Creates an expression.
    ///
    /// # Errors
    /// Fails as the API server does, for an unknown operator or for values that do not fit it.
    pub fn new(key: &str, operator: &str, values: Vec<String>) -> Result<Self, SelectorError> {
        let (operator, wants_values, name) = match operator {
            "In" => (Operator::In, true, "In"),
            "NotIn" => (Operator::NotIn, true, "NotIn"),
            "Exists" => (Operator::Exists, false, "Exists"),
            "DoesNotExist" => (Operator::DoesNotExist, false, "DoesNotExist"),
            other => return Err(SelectorError::Operator(other.to_owned())),
        };
        match (wants_values, values.is_empty()) {
            (true, true) => Err(SelectorError::NoValues(key.to_owned(), name)),
            (false, false) => Err(SelectorError::Values(key.to_owned(), name)),
            _ => Ok(Self {
                key: key.to_owned(),
                operator,
                values,
            }),
        }
    }

    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let listed = || value.is_some_and(|v| self.values.iter().any(|w| w == v));
        match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl Selector {
    /// Returns whether the selector matches every object.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Returns whether the selector matches an object with `labels`.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels
            .iter()
            .all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|e| e.matches(labels))
    }
}

/// One required term of a pod's affinity or anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodTerm {
    /// True if the selected pods keep the pod away; otherwise one of them must be near.
    pub anti: bool,
    /// The selector of pods by their labels.
    pub selector: Selector,
    /// The namespaces of the selected pods.
    pub namespaces: Box<[Box<str>]>,
    /// The selector of further namespaces by their labels; an empty one selects all.
    pub namespace_selector: Option<Selector>,
    /// The node label that defines places: nodes with the same value are one place.
    pub topology_key: Box<str>,
}

impl PodTerm {
    /// Returns a term that no node satisfies, as no node has its empty topology key.
    pub fn unsatisfiable() -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expr(key: &str, op: &str, values: &[&str]) -> Expression {
        Expression::new(key, op, values.iter().map(|v| (*v).to_owned()).collect()).unwrap()
    }

    #[test]
    fn selector_operators_match_like_kubernetes() {
        let labels: Labels = [("app", "web"), ("tier", "")].into_iter().collect();
        let cases = [
            (expr("app", "In", &["web", "db"]), true),
            (expr("app", "In", &["db"]), false),
            (expr("none", "In", &["db"]), false),
            (expr("app", "NotIn", &["web"]), false),
            (expr("none", "NotIn", &["web"]), true),
            (expr("tier", "Exists", &[]), true),
            (expr("none", "Exists", &[]), false),
            (expr("none", "DoesNotExist", &[]), true),
        ];
        for (e, want) in cases {
            assert_eq!(e.matches(&labels), want, "{e:?}");
        }
    }

    #[test]
    fn expression_new_rejects_malformed_expressions() {
        assert!(Expression::new("a", "Is", vec![]).is_err());
        assert!(Expression::new("a", "In", vec![]).is_err());
        assert!(Expression::new("a", "Exists", vec!["x".into()]).is_err());
    }

    proptest! {
        #[test]
        fn labels_store_every_pair(pairs in proptest::collection::btree_map("[a-z./]{0,9}", "[a-z0-9]{0,9}", 0..8)) {
            let labels: Labels = pairs.iter().collect();
            for (k, v) in &pairs {
                prop_assert_eq!(labels.get(k), Some(v.as_str()));
            }
            prop_assert_eq!(labels.iter().count(), pairs.len());
            let packed: Vec<&str> = labels.packed().collect();
            let each: Vec<Box<str>> = pairs.iter().filter_map(|(k, v)| Labels::pack(k, v)).collect();
            prop_assert_eq!(packed, each.iter().map(|p| &**p).collect::<Vec<_>>());
        }

        #[test]
        fn selector_in_and_not_in_are_opposites(pairs in proptest::collection::btree_map("[ab]", "[xyz]", 0..3),
                                       key in "[abc]", values in proptest::collection::vec("[xyz]", 1..3)) {
            let labels: Labels = pairs.iter().collect();
            let of = |op| Expression::new(&key, op, values.clone()).unwrap().matches(&labels);
            prop_assert_ne!(of("In"), of("NotIn"));
        }

        #[test]
        fn selector_with_more_requirements_selects_no_more(pairs in proptest::collection::btree_map("[ab]", "[xy]", 0..3),
                                               k in "[ab]", v in "[xy]") {
            let labels: Labels = pairs.iter().collect();
            let one = Selector { match_labels: vec![(k.clone(), v.clone())], ..Selector::default() };
            let mut two = one.clone();
            two.match_expressions.push(expr("a", "Exists", &[]));
            prop_assert!(one.matches(&labels) || !two.matches(&labels));
            prop_assert!(Selector::default().matches(&labels));
        }
    }
}
