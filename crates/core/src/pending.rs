//! Says in one sentence why a pod waits for a node. Figures are those of the providers' texts.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    costs::CostDetail,
    figure::Figure,
    planning::{RuleOutcome, code},
    text,
};

/// The maximum number of reasons in a sentence.
const MAX_REASONS: usize = 4;
/// The maximum length of a provider's text in a sentence.
const MAX_DETAIL_CHARS: usize = 160;

/// A rule of a waiting pod, with its result.
#[derive(Clone, Copy, Debug)]
pub struct PendingRule<'a> {
    /// The rule's name; the policy's name if the policy does not exist.
    pub rule: &'a str,
    /// The rule's result.
    pub outcome: &'a RuleOutcome,
    /// The reason why the rule has no costs, for people.
    pub error: Option<&'a str>,
}

impl<'a> PendingRule<'a> {
    /// Returns the code and the text with which the rule refuses the node at a position; `None` if
    /// it admits the node.
    fn refusal(&self, at: usize) -> Option<CostDetail<'a>> {
        let RuleOutcome::Costs(costs) = self.outcome else {
            return None;
        };
        let detail = costs.detail(at).unwrap_or_default();
        let code = match (costs.get(at), detail.code) {
            (Some(cost), _) if cost >= 0 => return None,
            (None, _) => code::NO_COST,
            (_, "") => code::UNUSABLE,
            (_, code) => code,
        };
        Some(CostDetail { code, ..detail })
    }

    /// Returns the sentence for a rule whose missing answer excludes all nodes.
    fn no_answer(&self) -> Option<String> {
        let RuleOutcome::Unavailable { code, reject: true } = self.outcome else {
            return None;
        };
        let error = self.error.unwrap_or(code);
        Some(match *code {
            code::POLICY_MISSING => format!("No node is usable: {error}."),
            _ => format!(
                "Rule {} has no answer, so no node is usable: {error}.",
                self.rule
            ),
        })
    }
}

/// Returns the sentence for a pod whose rules leave none of the `nodes` nodes that Kubernetes' own
/// rules admit. `name` returns the name of the node at a position. `None` if a node is usable, or
/// if there is no node.
pub fn by_rules<'n>(
    nodes: usize,
    name: impl Fn(usize) -> &'n str,
    rules: &[PendingRule<'_>],
) -> Option<String> {
    if let Some(sentence) = rules.iter().find_map(PendingRule::no_answer) {
        return Some(sentence);
    }
    let refusals = |at: usize| {
        let all = rules.iter().enumerate();
        all.filter_map(move |(i, rule)| Some((i, rule.refusal(at)?)))
    };
    // The number of nodes that each rule refuses alone.
    let mut alone = vec![0; rules.len()];
    for at in 0..nodes {
        let mut all = refusals(at);
        match (all.next(), all.next()) {
            (None, _) => return None,
            (Some((i, _)), None) => alone[i] += 1,
            _ => {}
        }
    }
    let plural = if nodes == 1 { "" } else { "s" };
    let start = format!(
        "Kubernetes' own rules admit {} node{plural}",
        spelled(nodes)
    );
    let named =
        |(i, refusal): (usize, CostDetail<'_>)| format!("{}/{}", rules[i].rule, refusal.code);
    let main = (0..rules.len()).max_by_key(|i| (alone[*i], Reverse(*i)));
    let Some(main) = main.filter(|main| alone[*main] > 0 && nodes > 0) else {
        let all = refused(counted((0..nodes).flat_map(&refusals).map(named)));
        return (nodes > 0).then(|| format!("{start}; more than one rule refuses each: {all}."));
    };
    let others = (0..nodes).filter_map(|at| refusals(at).find(|(i, _)| *i != main));
    let others = counted(others.map(named));
    let is_alone = |at: &usize| refusals(*at).all(|(i, _)| i == main);
    let alone = || (0..nodes).filter(is_alone);
    let figure = |at: usize| {
        let figure = Figure::parse(rules[main].refusal(at)?.detail)?;
        (figure.value > figure.limit).then_some((at, figure))
    };
    let Some((best, figure_of_best)) = alone().filter_map(figure).min_by_key(|(_, f)| f.value)
    else {
        let reasons = alone().filter_map(|at| Some(named((main, rules[main].refusal(at)?))));
        let mut reasons = counted(reasons);
        reasons.extend(others);
        let mut details = alone().filter_map(|at| Some((at, rules[main].refusal(at)?.detail)));
        let example = details.find(|(_, detail)| !detail.is_empty());
        let example = example.map(|(at, detail)| {
            let detail = text::sanitize(detail, MAX_DETAIL_CHARS);
            format!(", such as {}: {detail}", name(at))
        });
        let example = example.unwrap_or_default();
        return Some(format!("{start}; {}{example}.", refused(reasons)));
    };
    let is_best = |(_, figure): &(usize, Figure<'_>)| figure.value == figure_of_best.value;
    let admitted = spelled(alone().filter_map(figure).filter(is_best).count());
    let (text, limit) = (figure_of_best.text, figure_of_best.limit_text);
    let (of_others, refused) = if others.is_empty() {
        ("", String::new())
    } else {
        (" of the others", format!("; {}", refused(others)))
    };
    let (of_rule, best) = (rules[main].rule, name(best));
    let rule = match rules {
        [_] => String::new(),
        _ => format!(" of {of_rule}"),
    };
    let place = match of_rule {
        "latency" => format!("the nearest{of_others}, {best}, is {text} away"),
        _ => format!("the least{of_others} is {text}, of {best}"),
    };
    Some(format!(
        "{start}{refused}; {place}, the limit{rule} is {limit}; a limit of {text} would admit {admitted}."
    ))
}

/// Returns the sentence for a pod that Kubernetes' own rules exclude from all `nodes` nodes, by the
/// reason of each node. `None` if there are fewer reasons than nodes.
pub fn by_kubernetes<'a>(
    nodes: usize,
    reasons: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let reasons = counted(reasons.into_iter().map(str::to_owned));
    if reasons.iter().map(|(_, count)| count).sum::<usize>() < nodes {
        return None;
    }
    let on = |(reason, count): &(String, usize)| format!("{reason} on {}", spelled(*count));
    let reasons = match reasons.as_slice() {
        [] => return Some("There are no nodes.".to_owned()),
        [(only, _)] => only.clone(),
        several => {
            let first = several.iter().take(MAX_REASONS).map(on);
            first.collect::<Vec<_>>().join(", ")
        }
    };
    let which = match nodes {
        1 => "the only node".to_owned(),
        2 => "both nodes".to_owned(),
        _ => format!("all {} nodes", spelled(nodes)),
    };
    Some(format!("Kubernetes' own rules exclude {which}: {reasons}."))
}

/// Returns the number of equal texts, the most frequent first.
fn counted(all: impl Iterator<Item = String>) -> Vec<(String, usize)> {
    let mut counts = BTreeMap::new();
    for text in all {
        *counts.entry(text).or_insert(0) += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts
}

/// Writes the reasons with their numbers of nodes: `gpu-slice/GpuFull refuses two, a/B one`.
fn refused(reasons: Vec<(String, usize)>) -> String {
    let reasons = reasons.into_iter().take(MAX_REASONS).enumerate();
    let reasons = reasons.map(|(i, (reason, count))| {
        let verb = if i == 0 { " refuses" } else { "" };
        format!("{reason}{verb} {}", spelled(count))
    });
    reasons.collect::<Vec<_>>().join(", ")
}

/// Writes a number as a word up to twelve.
fn spelled(number: usize) -> String {
    const WORDS: [&str; 13] = [
        "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ];
    WORDS
        .get(number)
        .map_or_else(|| number.to_string(), |word| (*word).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::Costs;

    const NAMES: [&str; 4] = ["n1", "n2", "n3", "n4"];

    /// The code and the text of each node's refusal; an empty code admits the node.
    fn costs(lines: &[(&str, &str)]) -> RuleOutcome {
        let mut costs = Costs::new(lines.len());
        for (at, (code, detail)) in lines.iter().enumerate() {
            let cost = if code.is_empty() { 5 } else { -1 };
            let detail = CostDetail {
                code,
                detail,
                ..CostDetail::default()
            };
            costs.put(at, cost, detail);
        }
        RuleOutcome::Costs(costs)
    }

    fn sentence(nodes: usize, rules: &[(&str, &RuleOutcome, Option<&str>)]) -> String {
        let rules = rules.iter().map(|&(rule, outcome, error)| PendingRule {
            rule,
            outcome,
            error,
        });
        let rules: Vec<PendingRule<'_>> = rules.collect();
        by_rules(nodes, |at| NAMES[at], &rules).unwrap_or_else(|| "-".to_owned())
    }

    #[test]
    fn sentence_names_the_limit_that_would_do() {
        let far = costs(&[
            ("OverLimit", "31ms to n9 > 100us, measured 75s ago"),
            ("OverLimit", "900us to n9 > 100us"),
            ("OverLimit", "0.9ms to n9 > 100us"),
            ("NoData", "no figure to n9"),
        ]);
        assert_eq!(
            sentence(4, &[("latency", &far, None)]),
            "Kubernetes' own rules admit four nodes; the nearest, n2, is 900us away, the limit is 100us; \
             a limit of 900us would admit two."
        );
        let gpu = costs(&[("", ""), ("WrongModel", "T4"), ("", ""), ("", "")]);
        assert_eq!(
            sentence(4, &[("latency", &far, None), ("gpu-slice", &gpu, None)]),
            "Kubernetes' own rules admit four nodes; gpu-slice/WrongModel refuses one; the nearest of \
             the others, n3, is 0.9ms away, the limit of latency is 100us; a limit of 0.9ms would admit one."
        );
        let jitter = costs(&[("OverLimit", "3.001ms of jitter to n9 > 3ms")]);
        assert_eq!(
            sentence(1, &[("jitter", &jitter, None)]),
            "Kubernetes' own rules admit one node; the least is 3.001ms, of n1, the limit is 3ms; \
             a limit of 3.001ms would admit one."
        );
    }

    #[test]
    fn sentence_has_no_figure_that_is_not_known() {
        let hidden = costs(&[("OverLimit", ""), ("OverLimit", "far > near"), ("", "")]);
        let full = costs(&[("", ""), ("", ""), ("GpuFull", "card 0 lacks 250m")]);
        assert_eq!(
            sentence(3, &[("latency", &hidden, None), ("gpu-slice", &full, None)]),
            "Kubernetes' own rules admit three nodes; latency/OverLimit refuses two, gpu-slice/GpuFull one, \
             such as n2: far > near."
        );
        let lacking = RuleOutcome::Costs(Costs::new(1));
        assert_eq!(
            sentence(1, &[("carbon", &lacking, None)]),
            "Kubernetes' own rules admit one node; carbon/NoCost refuses one."
        );
    }

    #[test]
    fn sentence_names_several_rules() {
        let far = costs(&[("OverLimit", "9ms > 5ms"), ("OverLimit", "8ms > 5ms")]);
        let full = costs(&[("GpuFull", "x"), ("GpuFull", "x")]);
        assert_eq!(
            sentence(2, &[("latency", &far, None), ("gpu-slice", &full, None)]),
            "Kubernetes' own rules admit two nodes; more than one rule refuses each: \
             gpu-slice/GpuFull refuses two, latency/OverLimit two."
        );
    }

    #[test]
    fn sentence_names_the_rule_without_an_answer() {
        let far = costs(&[("OverLimit", "9ms > 5ms")]);
        let none = |code, reject| RuleOutcome::Unavailable { code, reject };
        let no_provider = none(code::NO_PROVIDER, true);
        let error = Some("no Service has the label constraint.ciena.com/constraint-carbon");
        assert_eq!(
            sentence(
                1,
                &[("latency", &far, None), ("carbon", &no_provider, error)]
            ),
            "Rule carbon has no answer, so no node is usable: no Service has the label \
             constraint.ciena.com/constraint-carbon."
        );
        let silent = none(code::TIMEOUT, true);
        let text = "Rule carbon has no answer, so no node is usable: ProviderTimeout.";
        assert_eq!(sentence(1, &[("carbon", &silent, None)]), text);
        let policy = none(code::POLICY_MISSING, true);
        let error = Some("ConstraintPolicy shop/near does not exist; the offer web names it");
        assert_eq!(
            sentence(0, &[("near", &policy, error)]),
            "No node is usable: ConstraintPolicy shop/near does not exist; the offer web names it."
        );
        // A rule that is ignored refuses nothing.
        let ignored = none(code::TIMEOUT, false);
        assert_eq!(sentence(1, &[("carbon", &ignored, None)]), "-");
        assert_eq!(sentence(0, &[]), "-");
    }

    #[test]
    fn sentence_counts_the_nodes_of_kubernetes_rules() {
        let cpu = "insufficient cpu";
        let taint = "untolerated taint gpu";
        assert_eq!(
            by_kubernetes(3, [cpu, taint, cpu]).unwrap(),
            "Kubernetes' own rules exclude all three nodes: insufficient cpu on two, \
             untolerated taint gpu on one."
        );
        assert_eq!(
            by_kubernetes(1, [cpu]).unwrap(),
            "Kubernetes' own rules exclude the only node: insufficient cpu."
        );
        assert_eq!(by_kubernetes(0, []).unwrap(), "There are no nodes.");
        assert_eq!(by_kubernetes(2, [cpu]), None, "one node is not excluded");
    }
}
