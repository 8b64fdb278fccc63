//! One label selector for many, short enough for a request to the API server.

use std::collections::{BTreeMap, BTreeSet};

use crate::selector::{Operator, Selector};

/// Maximum bytes of the query: it is part of a URL, which may have 64 KiB.
const LONGEST: usize = 16 << 10;

type Clauses<T> = BTreeMap<T, BTreeSet<T>>;

/// The label keys that all of several selectors require, with the values that any allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorUnion {
    /// `None` selects nothing; no clauses select everything.
    clauses: Option<Clauses<String>>,
}

impl SelectorUnion {
    /// Whether it selects nothing.
    pub fn is_empty(&self) -> bool {
        self.clauses.is_none()
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.clauses.as_ref().is_some_and(BTreeMap::is_empty)
    }

    /// Whether it selects every object that `selector` may select.
    pub fn covers(&self, selector: &Selector) -> bool {
        let Some(required) = required(selector) else {
            return true;
        };
        self.clauses.as_ref().is_some_and(|clauses| {
            clauses.iter().all(|(key, values)| {
                let allowed = required.get(key.as_str());
                allowed.is_some_and(|a| a.iter().all(|v| values.contains(*v)))
            })
        })
    }

    /// Adds the objects of `selector`.
    pub fn add(&mut self, selector: &Selector) {
        let Some(mut required) = required(selector) else {
            return;
        };
        let clauses = match &mut self.clauses {
            Some(clauses) => {
                clauses.retain(|key, values| {
                    let more = required.remove(key.as_str());
                    let stays = more.is_some();
                    values.extend(more.into_iter().flatten().map(str::to_owned));
                    stays
                });
                clauses
            }
            none => none.insert(owned(required)),
        };
        // A removed clause must stay out, or the selection could shrink later.
        while length(clauses) > LONGEST {
            let longest = clauses.iter().max_by_key(|(key, v)| clause_length(key, v));
            let Some(longest) = longest.map(|(key, _)| key.clone()) else {
                return;
            };
            clauses.remove(&longest);
        }
    }

    /// The objects that `later` selects in addition; `None` unless it only adds values to one key.
    pub fn difference(&self, later: &Self) -> Option<Self> {
        let (mine, mut clauses) = (self.clauses.as_ref()?, later.clauses.clone()?);
        if !mine.keys().eq(clauses.keys()) {
            return None;
        }
        let pairs = mine.values().zip(clauses.values_mut());
        let mut grown = pairs.filter(|(mine, later)| mine != later);
        let (Some((mine, later)), None) = (grown.next(), grown.next()) else {
            return None;
        };
        later.retain(|value| !mine.contains(value));
        Some(Self {
            clauses: Some(clauses),
        })
    }

    /// The `labelSelector` of a list or watch; empty if nothing or everything is selected.
    pub fn to_query(&self) -> String {
        let clauses = self.clauses.iter().flatten();
        let texts: Vec<String> = clauses
            .map(|(key, values)| {
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                format!("{key} in ({})", values.join(","))
            })
            .collect();
        texts.join(",")
    }
}

fn owned(clauses: Clauses<&str>) -> Clauses<String> {
    let of = |(key, values): (&str, BTreeSet<&str>)| {
        (
            key.to_owned(),
            values.into_iter().map(str::to_owned).collect(),
        )
    };
    clauses.into_iter().map(of).collect()
}

fn length(clauses: &Clauses<String>) -> usize {
    clauses.iter().map(|(key, v)| clause_length(key, v)).sum()
}

fn clause_length(key: &str, values: &BTreeSet<String>) -> usize {
    key.len() + " in (),".len() + values.iter().map(|v| v.len() + 1).sum::<usize>()
}

/// The labels that every selected object has, with their possible values except the empty one;
/// `None` if no object can have them.
fn required(selector: &Selector) -> Option<Clauses<&str>> {
    let equal = selector.match_labels.iter();
    let equal = equal.map(|(key, value)| (key, std::slice::from_ref(value)));
    let expressions = selector.match_expressions.iter();
    let listed = expressions.filter(|e| e.operator == Operator::In);
    let listed = listed.map(|e| (&e.key, &e.values[..]));
    let mut clauses = Clauses::new();
    for (key, values) in equal.chain(listed) {
        if !is_key(key) {
            return None;
        }
        if values.iter().any(String::is_empty) {
            continue;
        }
        let values = values.iter().map(String::as_str).filter(|v| is_value(v));
        let values: BTreeSet<&str> = values.collect();
        if values.is_empty() {
            return None;
        }
        clauses.insert(key.as_str(), values);
    }
    Some(clauses)
}

/// A valid label value, or name part of a label key
/// ([labels](https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/)).
fn is_value(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    let inside = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    text.len() <= 63
        && ends.iter().flatten().all(u8::is_ascii_alphanumeric)
        && text.bytes().all(inside)
}

fn is_key(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let label = |label: &str| {
        let ends = !label.starts_with('-') && !label.ends_with('-');
        !label.is_empty() && ends && label.bytes().all(lower)
    };
    !name.is_empty()
        && is_value(name)
        && prefix.is_none_or(|p| p.len() <= 253 && p.split('.').all(label))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::selector::{Expression, Labels};

    fn labels(pairs: &[(&str, &str)]) -> Selector {
        let pairs = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        Selector {
            match_labels: pairs.collect(),
            ..Selector::default()
        }
    }

    fn text(selectors: &[Selector]) -> String {
        let mut union = SelectorUnion::default();
        selectors.iter().for_each(|s| union.add(s));
        match (union.is_empty(), union.is_everything()) {
            (true, _) => "nothing".to_owned(),
            (_, true) => "everything".to_owned(),
            _ => union.to_query(),
        }
    }

    #[test]
    fn to_query_has_common_requirements() {
        let (web, db) = (
            labels(&[("app", "web"), ("tier", "1")]),
            labels(&[("app", "db")]),
        );
        assert_eq!(text(&[]), "nothing");
        assert_eq!(text(std::slice::from_ref(&web)), "app in (web),tier in (1)");
        assert_eq!(text(&[web.clone(), db.clone()]), "app in (db,web)");
        assert_eq!(text(&[web.clone(), labels(&[])]), "everything");
        assert_eq!(text(&[web, labels(&[("tier", "1")]), db]), "everything");
    }

    #[test]
    fn add_ignores_impossible_labels() {
        for (key, value) in [
            ("app", "a b"),
            ("app", "a,b"),
            ("app", "-a"),
            ("app", &*"a".repeat(64)),
            ("a b", "c"),
            ("", "c"),
            ("x/", "c"),
            ("/x", "c"),
            ("a/b/c", "c"),
            ("X.io/a", "c"),
        ] {
            assert_eq!(text(&[labels(&[(key, value)])]), "nothing", "{key} {value}");
        }
        assert_eq!(text(&[labels(&[("app", "")])]), "everything");
        assert_eq!(
            text(&[labels(&[("a.io/b_c", "D.e-f")])]),
            "a.io/b_c in (D.e-f)"
        );
    }

    #[test]
    fn add_drops_long_clauses_for_good() {
        let mut union = SelectorUnion::default();
        for i in 0..5_000 {
            union.add(&labels(&[("app", &format!("app-{i}")), ("tier", "1")]));
        }
        assert_eq!(union.to_query(), "tier in (1)");
        union.add(&labels(&[("app", "one-more")]));
        assert!(union.is_everything());
    }

    #[test]
    fn difference_gives_additional_values() {
        let union = |selectors: &[Selector]| {
            let mut union = SelectorUnion::default();
            selectors.iter().for_each(|s| union.add(s));
            union
        };
        let of = |app, tier| labels(&[("app", app), ("tier", tier)]);
        let web = union(&[of("web", "1")]);
        let more = |selectors: &[Selector]| {
            let mut later = web.clone();
            selectors.iter().for_each(|s| later.add(s));
            web.difference(&later).map(|union| union.to_query())
        };
        let text = Some("app in (cache,db),tier in (1)".to_owned());
        assert_eq!(more(&[of("db", "1"), of("cache", "1")]), text);
        assert_eq!(more(&[of("db", "2")]), None);
        assert_eq!(more(&[labels(&[("app", "db")])]), None);
        assert_eq!(SelectorUnion::default().difference(&web), None);
    }

    fn selects(union: &SelectorUnion, pod: &std::collections::BTreeMap<String, String>) -> bool {
        union.clauses.as_ref().is_some_and(|clauses| {
            clauses
                .iter()
                .all(|(key, values)| pod.get(key).is_some_and(|value| values.contains(value)))
        })
    }

    fn selector() -> impl Strategy<Value = Selector> {
        let pair = ("[abc]", "[xyz]?");
        let operator = prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist"]);
        let values = prop::collection::vec("[xyz]?", 1..3);
        let expression = ("[abc]", operator, values).prop_map(|(key, operator, values)| {
            let takes = operator.ends_with("In");
            Expression::new(&key, operator, if takes { values } else { vec![] }).unwrap()
        });
        let labels = prop::collection::vec(pair, 0..3);
        let expressions = prop::collection::vec(expression, 0..2);
        (labels, expressions).prop_map(|(match_labels, match_expressions)| Selector {
            match_labels,
            match_expressions,
        })
    }

    proptest! {
        #[test]
        fn selector_union_covers_every_selector(selectors in prop::collection::vec(selector(), 0..5),
                                       pairs in prop::collection::btree_map("[abc]", "[xyz]?", 0..4)) {
            let pod: Labels = pairs.iter().collect();
            let mut union = SelectorUnion::default();
            for selector in &selectors {
                let before = union.clone();
                union.add(selector);
                prop_assert!(union.covers(selector));
                prop_assert!(!before.covers(selector) || before == union);
                for earlier in &selectors {
                    prop_assert!(!before.covers(earlier) || union.covers(earlier));
                }
                if let Some(added) = before.difference(&union) {
                    let parts = [&before, &added].map(|part| selects(part, &pairs));
                    prop_assert_eq!(selects(&union, &pairs), parts.contains(&true));
                    prop_assert_ne!(parts, [true, true]);
                }
            }
            prop_assert!(selects(&union, &pairs) || !selectors.iter().any(|s| s.matches(&pod)));
        }
    }
}
