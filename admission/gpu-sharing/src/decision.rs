use std::fmt;

use serde_json::Value;

use crate::{
    Change, Names, Policy, annotations, containers::gpu_containers, text::quoted, workload_ratio,
};

/// The decision on one pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The pod is admitted without a change.
    Unchanged(Unchanged),
    /// The pod is admitted with units in place of whole cards.
    Mutate(Mutation),
    /// The pod is refused, because an annotation, a request, or the rule that matches is invalid.
    Refuse(Refusal),
}

/// The reason why a pod is not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// The containers do not request whole cards.
    NoCards,
    /// The annotation `optimize` with this key has the value `"false"`.
    OptedOut(String),
    /// The pod is not opted in by an annotation or a rule.
    NotAsked {
        /// The key and value of the annotation `optimize`, if it exists but is neither true nor
        /// false.
        unclear: Option<(String, String)>,
    },
}

/// The change of a pod whose containers request cards.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    /// JSON Patch operations (RFC 6902) on the pod.
    pub patch: Vec<Value>,
    /// The number of shares for each requested card, from 1 to 64.
    pub ratio: i64,
    /// The origin of the ratio.
    pub source: Source,
    /// The annotation or rule that opted the pod in.
    pub cause: Cause,
    /// The changes, one for each container that requested cards. Init containers come first.
    pub changes: Vec<Change>,
}

/// The annotation or rule that opts a pod in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The key of the annotation `optimize` whose value is `"true"`.
    Annotation(String),
    /// The index of the first rule that matches the pod.
    Rule(usize),
}

/// The origin of a ratio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The key of the annotation, `slice-ratio` or `workload-type`.
    Annotation(String),
    /// The index of the rule with the `sliceRatio`.
    RuleRatio(usize),
    /// The index of the rule with the `workloadType`.
    RuleWorkload(usize),
    /// The ratio is 1, because neither the annotations nor the rule give one.
    Default,
}

/// The reason why a pod is refused, in words for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Decides on a new pod in `namespace`. Without a policy only annotations count.
pub fn decide(names: &Names, policy: Option<&Policy>, namespace: &str, pod: &Value) -> Decision {
    decided(names, policy, namespace, pod).unwrap_or_else(Decision::Refuse)
}

fn decided(
    names: &Names,
    policy: Option<&Policy>,
    namespace: &str,
    pod: &Value,
) -> Result<Decision, Refusal> {
    let containers = gpu_containers(names, pod);
    if containers.is_empty() {
        return Ok(Decision::Unchanged(Unchanged::NoCards));
    }
    let (cause, rule) = match annotations::find(pod, "optimize")? {
        Some(found) if found.value == "true" => (Cause::Annotation(found.key), None),
        Some(found) if found.value == "false" => {
            return Ok(Decision::Unchanged(Unchanged::OptedOut(found.key)));
        }
        unclear => {
            let labels = &pod["metadata"]["labels"];
            let matching = policy.and_then(|p| Some((p, p.matching(namespace, labels)?)));
            let Some((policy, (at, rule))) = matching else {
                let unclear = unclear.map(|found| (found.key, found.value.to_owned()));
                return Ok(Decision::Unchanged(Unchanged::NotAsked { unclear }));
            };
            (Cause::Rule(at), Some((policy, at, rule)))
        }
    };
    let (ratio, source) = match (annotations::ratio(pod)?, rule) {
        (Some(own), _) => own,
        (None, None) => (1, Source::Default),
        (None, Some((policy, at, rule))) => {
            if let Some(bad) = policy.fault(at) {
                return Err(Refusal(format!("the slice policy's {bad}")));
            }
            match workload_ratio(&rule.workload) {
                _ if rule.ratio != 0 => (rule.ratio, Source::RuleRatio(at)),
                Some(ratio) => (ratio, Source::RuleWorkload(at)),
                None => (1, Source::Default),
            }
        }
    };
    let mut patch = Vec::new();
    let share = containers.iter().map(|a| a.share(names, ratio, &mut patch));
    let changes = share.collect::<Result<_, _>>()?;
    Ok(Decision::Mutate(Mutation {
        patch,
        ratio,
        source,
        cause,
        changes,
    }))
}

impl Mutation {
    /// Returns whether a rule opted the pod in, which the metric `castslice_policy_enforced_total`
    /// counts.
    pub fn policy_enforced(&self) -> bool {
        matches!(self.cause, Cause::Rule(_))
    }

    /// Returns the audit annotations, with keys without a domain: `rule` (if one applies), `ratio`
    /// and `why`.
    pub fn audit(&self) -> Vec<(&'static str, String)> {
        let rule = match self.cause {
            Cause::Rule(at) => Some(("rule", format!("rules[{at}]"))),
            Cause::Annotation(_) => None,
        };
        let rest = [
            ("ratio", self.ratio.to_string()),
            ("why", format!("{}; {}", self.cause, self.source)),
        ];
        rule.into_iter().chain(rest).collect()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(key) => write!(f, "annotation {key} requests it"),
            Self::Rule(at) => write!(f, "rules[{at}] matches"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(key) => write!(f, "the ratio is of annotation {key}"),
            Self::RuleRatio(at) => write!(f, "the ratio is sliceRatio of rules[{at}]"),
            Self::RuleWorkload(at) => write!(f, "the ratio is workloadType of rules[{at}]"),
            Self::Default => f.write_str("no ratio is given, so it is 1"),
        }
    }
}

impl fmt::Display for Unchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCards => f.write_str("no container requests a card"),
            Self::OptedOut(key) => write!(f, "annotation {key} is \"false\""),
            Self::NotAsked { unclear: None } => {
                f.write_str("no annotation requests it, and no rule matches")
            }
            Self::NotAsked {
                unclear: Some((key, value)),
            } => write!(
                f,
                "annotation {key} is {}, neither \"true\" nor \"false\", and no rule matches",
                quoted(value)
            ),
        }
    }
}

#[cfg(test)]
mod tests;
