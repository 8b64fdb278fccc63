//! The slice policy: ordered rules, of which the first that matches a pod applies.
//!
//! ```json
//! {"rules": [{"namespaces": ["ml-team"], "labelSelector": {"gpu": "shared"},
//!             "workloadType": "training", "sliceRatio": 8}]}
//! ```
//!
//! It is parsed as by Go's `encoding/json`, which CastSlice uses: the case of field names does not
//! matter, null counts as absent, and unknown fields are ignored (here with a warning).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::{
    MAX_RATIO, WORKLOADS,
    text::{quoted, shown},
    workload_ratio,
};

/// The number of warnings about unknown fields after which no more are added. It is limited,
/// because a policy may be as large as a megabyte.
const MAX_WARNINGS: usize = 20;
const FIELDS: [&str; 4] = ["namespaces", "labelSelector", "workloadType", "sliceRatio"];

/// A parsed slice policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    bad: Vec<BadRule>,
    warnings: Vec<String>,
}

/// A rule. It matches a pod that meets all conditions; an empty condition is always met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    namespaces: BTreeSet<String>,
    labels: BTreeMap<String, String>,
    pub(crate) workload: String,
    pub(crate) ratio: i64,
}

/// A rule has no valid ratio. Pods whose first matching rule it is are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rules[{rule}]: {what}")]
pub struct BadRule {
    pub(crate) rule: usize,
    pub(crate) what: String,
}

/// The reason why a whole policy cannot be used. A bad rule alone is not an error.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The text is not JSON.
    #[error("it is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A value has a wrong type.
    #[error("{at} is {found}; write {expected}")]
    Form {
        /// The path of the value, such as `rules[0].sliceRatio`.
        at: String,
        /// The value, on one line and shortened.
        found: String,
        /// The type to write instead.
        expected: &'static str,
    },
}

impl Policy {
    /// Parses a policy. Invalid rules are not an error: see [`Policy::bad_rules`].
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let value: Value = serde_json::from_str(text)?;
        let mut policy = Self::default();
        let top = match &value {
            Value::Null => return Ok(policy),
            other => object("the policy", other)?,
        };
        policy.unknown("the policy", top, &["rules"]);
        let rules = match field(top, "rules") {
            None => return Ok(policy),
            Some(rules) => list("rules", rules)?,
        };
        for (at, rule) in rules.iter().enumerate() {
            policy.add(at, rule)?;
        }
        policy.unreached();
        Ok(policy)
    }

    /// Returns the number of rules, including bad ones.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Returns the bad rules in the policy's order.
    pub fn bad_rules(&self) -> &[BadRule] {
        &self.bad
    }

    /// Returns warnings about unknown fields, and about rules after one that matches every pod.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(crate) fn matching(&self, namespace: &str, labels: &Value) -> Option<(usize, &Rule)> {
        let mut rules = self.rules.iter().enumerate();
        rules.find(|(_, rule)| rule.matches(namespace, labels))
    }

    pub(crate) fn fault(&self, rule: usize) -> Option<&BadRule> {
        let at = self.bad.binary_search_by_key(&rule, |bad| bad.rule);
        at.ok().and_then(|at| self.bad.get(at))
    }

    fn add(&mut self, at: usize, value: &Value) -> Result<(), PolicyError> {
        let name = format!("rules[{at}]");
        let from = object(&name, value)?;
        self.unknown(&name, from, &FIELDS);
        let mut rule = Rule::default();
        if let Some(namespaces) = field(from, FIELDS[0]) {
            let name = format!("{name}.{}", FIELDS[0]);
            for (i, namespace) in list(&name, namespaces)?.iter().enumerate() {
                let namespace = string(|| format!("{name}[{i}]"), namespace)?;
                rule.namespaces.insert(namespace.to_owned());
            }
        }
        if let Some(labels) = field(from, FIELDS[1]) {
            let name = format!("{name}.{}", FIELDS[1]);
            for (key, label) in object(&name, labels)? {
                let label = string(|| format!("{name}[{}]", quoted(key)), label)?;
                rule.labels.insert(key.clone(), label.to_owned());
            }
        }
        if let Some(workload) = field(from, FIELDS[2]) {
            rule.workload = string(|| format!("{name}.{}", FIELDS[2]), workload)?.to_owned();
        }
        if let Some(ratio) = field(from, FIELDS[3]) {
            let number = ratio.as_i64();
            rule.ratio = number.ok_or_else(|| {
                let at = format!("{name}.{}", FIELDS[3]);
                form(at, ratio, "a whole number, without quotes")
            })?;
        }
        if let Some(what) = rule.fault() {
            self.bad.push(BadRule { rule: at, what });
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Warns about unknown fields. A condition with a misspelled name would match every pod.
    fn unknown(&mut self, at: &str, object: &Map<String, Value>, known: &[&str]) {
        let known_key = |key: &str| known.iter().any(|k| k.eq_ignore_ascii_case(key));
        for key in object.keys().filter(|key| !known_key(key)) {
            if self.warnings.len() >= MAX_WARNINGS {
                return;
            }
            self.warnings.push(format!(
                "{at}: {} is no field and is ignored; the fields are {}",
                quoted(key),
                known.join(", ")
            ));
        }
    }

    fn unreached(&mut self) {
        let Some(all) = self.rules.iter().position(Rule::matches_all) else {
            return;
        };
        let behind = self.rules.len() - all - 1;
        if behind > 0 {
            self.warnings.push(format!(
                "rules[{all}] matches every pod, so that no rule behind it is reached ({behind}); \
                 put it last, or give it namespaces or a labelSelector"
            ));
        }
    }
}

impl Rule {
    fn matches(&self, namespace: &str, labels: &Value) -> bool {
        (self.namespaces.is_empty() || self.namespaces.contains(namespace))
            && self.labels.iter().all(|(key, value)| {
                let label = labels.get(key).and_then(Value::as_str);
                label == Some(value.as_str())
            })
    }

    fn matches_all(&self) -> bool {
        self.namespaces.is_empty() && self.labels.is_empty()
    }

    fn fault(&self) -> Option<String> {
        if !(0..=MAX_RATIO).contains(&self.ratio) {
            return Some(format!(
                "sliceRatio is {}; write 1 to {MAX_RATIO}, or leave it out",
                self.ratio
            ));
        }
        if !self.workload.is_empty() && workload_ratio(&self.workload).is_none() {
            return Some(format!(
                "workloadType is {}; write {}",
                quoted(&self.workload),
                workloads()
            ));
        }
        None
    }
}

pub(crate) fn workloads() -> String {
    let [names @ .., last] = WORKLOADS.map(|(name, _)| name);
    format!("{} or {last}", names.join(", "))
}

/// Returns the value of a field. The exact name takes precedence over names in another case, and
/// null counts as absent.
fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let mut others = object.iter().filter(|(k, _)| k.eq_ignore_ascii_case(name));
    let found = object.get(name).or_else(|| others.next().map(|(_, v)| v));
    found.filter(|value| !value.is_null())
}

fn object<'a>(at: &str, value: &'a Value) -> Result<&'a Map<String, Value>, PolicyError> {
    let object = value.as_object();
    object.ok_or_else(|| form(at.to_owned(), value, "an object, {...}"))
}

fn list<'a>(at: &str, value: &'a Value) -> Result<&'a Vec<Value>, PolicyError> {
    let list = value.as_array();
    list.ok_or_else(|| form(at.to_owned(), value, "a list, [...]"))
}

fn string(at: impl FnOnce() -> String, value: &Value) -> Result<&str, PolicyError> {
    let text = value.as_str();
    text.ok_or_else(|| form(at(), value, "a text, in quotes"))
}

fn form(at: String, value: &Value, expected: &'static str) -> PolicyError {
    PolicyError::Form {
        at,
        found: shown(value),
        expected,
    }
}

#[cfg(test)]
mod tests;
