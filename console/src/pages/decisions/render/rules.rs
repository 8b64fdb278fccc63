//! Renders the rules of a round, with the answers of their providers.

use maud::{Markup, html};

use crate::{
    draw,
    pages::{
        decisions::{
            matrix::cost_text,
            round::{Round, Rule},
        },
        policies,
    },
    request::PageRequest,
    table::{Number, Text, styled_table},
};

pub(super) fn section(round: &Round, request: &PageRequest, namespace: &str) -> Markup {
    let times = round.rules.iter().map(|r| r.record.took_micros);
    let longest = times.max().unwrap_or(0).max(1);
    html! {
        h2 { "Rules and providers" }
        (styled_table(
            "Rules and providers",
            "wide",
            [Text("Rule"), Text("Request"), Text("Limit"), Text("Provider"), Text("Outcome"), Number("Costs"),
                Number("Weight"), Text("Time")],
            &html! { @for rule in &round.rules { (rule_row(rule, longest, request, namespace)) } },
        ))
        @if round.rules_left_out > 0 { p .dim { "and " (round.rules_left_out) " more rules" } }
    }
}

fn rule_row(rule: &Rule, longest: u64, request: &PageRequest, namespace: &str) -> Markup {
    let record = &rule.record;
    html! {
        tr {
            th scope="row" {
                a href=(request.link("rule", Some(&record.rule))) title="Only its column" { (record.rule) }
                " " span .dim {
                    "of " a href=(policies::offer_link(namespace, &record.offer)) { (record.offer) }
                }
            }
            td { (record.request) }
            td { (record.limit) }
            td { @match &record.provider {
                Some(provider) => (provider),
                None => span .dim { "none" },
            } }
            td { (outcome(rule)) }
            td .number { (range(rule)) }
            td .number { (record.weight) @if !rule.decides && rule.lowest.is_some() { " " span .dim { "no part" } } }
            td { (time(rule, longest)) }
        }
        @if let Some(error) = &record.error { tr { td colspan="8" { span .error { (error) } } } }
    }
}

fn outcome(rule: &Rule) -> Markup {
    html! {
        @if rule.record.outcome == "OK" {
            span .state.good { "answered" }
            @if rule.refused > 0 { " " (rule.refused) " refused" }
        } @else {
            span .state.bad { (rule.record.outcome) }
            " " (if rule.record.counted { "so no node is usable" } else { "so the rule is left out" })
        }
    }
}

fn range(rule: &Rule) -> String {
    let text = |cost: i64| match rule.unit {
        Some(_) => cost_text(&rule.record.rule, cost),
        None => rounded(cost),
    };
    match (rule.lowest, rule.highest) {
        (Some(low), Some(high)) if low == high => text(low),
        (Some(low), Some(high)) => format!("{} to {}", text(low), text(high)),
        _ => String::new(),
    }
}

/// Formats a cost without a unit: in full below 100,000, otherwise with three significant digits.
fn rounded(cost: i64) -> String {
    const STEPS: [(i64, &str); 4] = [
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    let step = STEPS.iter().find(|(step, _)| cost >= *step);
    let Some((step, sign)) = step.filter(|_| cost >= 100_000) else {
        return cost.to_string();
    };
    let hundredths = cost / (step / 100);
    match hundredths {
        0..1_000 => format!("{}.{:02}{sign}", hundredths / 100, hundredths % 100),
        1_000..10_000 => format!("{}.{}{sign}", hundredths / 100, hundredths / 10 % 10),
        _ => format!("{}{sign}", hundredths / 100),
    }
}

fn time(rule: &Rule, longest: u64) -> Markup {
    if let Some(age) = rule.record.age_micros {
        return html! { span .dim { "sent before, " (draw::micros(age)) " old" } };
    }
    html! {
        svg .bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
            rect class="u-used" width=((rule.record.took_micros.saturating_mul(100) / longest).max(1)) height="10" {}
        }
        " " (draw::micros(rule.record.took_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_has_three_figures() {
        for (cost, text) in [
            (0, "0"),
            (99_999, "99999"),
            (123_456, "123k"),
            (1_234_567, "1.23M"),
            (29_305_602_048, "29.3G"),
            (i64::MAX, "9223372T"),
        ] {
            assert_eq!(rounded(cost), text);
        }
    }
}
