//! Renders the tables of policies, offers and bindings that `tautline get` and `tautline watch`
//! print.

use std::borrow::Borrow;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use tautline_api::{
    ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer,
    constraint::PolicyRule,
    display::{Enforcement, reference},
};
use unicode_width::UnicodeWidthStr;

use crate::{
    age,
    table::{Column, cut, plain, table},
};

/// The maximum width of a reason in a table, in columns; longer reasons are cut, and `describe`
/// shows them whole.
const MAX_REASON_WIDTH: usize = 80;
/// The minimum width of a reason, in columns; a shorter one is useless.
const MIN_REASON_WIDTH: usize = 12;

pub(crate) fn policies(list: &[ConstraintPolicy], all: bool, now: Timestamp) -> String {
    let rules = |policy: &ConstraintPolicy| {
        let rules: Vec<String> = policy.spec.rules.iter().map(rule).collect();
        rules.join("; ")
    };
    with_namespace(
        all,
        &list.iter().collect::<Vec<_>>(),
        &[
            ("NAME", &|policy| policy.name_any()),
            ("RULES", &|policy| rules(policy)),
            ("AGE", &|policy| age_of(*policy, now)),
        ],
    )
}

pub(crate) fn offers(list: &[ConstraintPolicyOffer], all: bool, now: Timestamp) -> String {
    let count = |n: Option<i64>| n.map(|n| n.to_string()).unwrap_or_default();
    with_namespace(
        all,
        &list.iter().collect::<Vec<_>>(),
        &[
            ("NAME", &|offer| offer.name_any()),
            ("POLICIES", &|offer| offer.spec.policies.join(",")),
            ("BINDINGS", &|offer| {
                count(offer.status.as_ref().map(|s| s.binding_count))
            }),
            ("COMPLIANT", &|offer| {
                count(offer.status.as_ref().map(|s| s.compliant_binding_count))
            }),
            ("VIOLATION POLICY", &|offer| {
                Enforcement::of(offer).violation_policy
            }),
            ("PERIOD", &|offer| Enforcement::of(offer).period),
            ("GRACE", &|offer| Enforcement::of(offer).grace),
            ("READY", &|offer| ready(offer)),
            ("AGE", &|offer| age_of(*offer, now)),
        ],
    )
}

fn age_of(object: &impl ResourceExt, now: Timestamp) -> String {
    age::since_time(object.meta().creation_timestamp.as_ref(), now)
}

pub(crate) fn bindings(
    list: &[impl Borrow<ConstraintPolicyBinding>],
    all: bool,
    now: Timestamp,
) -> String {
    bindings_with(list, all, now, true, MAX_REASON_WIDTH)
}

/// Renders the table of bindings for a terminal's width: it leaves out the targets first, then cuts
/// the reasons.
pub(crate) fn bindings_within(
    list: &[impl Borrow<ConstraintPolicyBinding>],
    all: bool,
    now: Timestamp,
    columns: usize,
) -> String {
    let excess = |text: &str| {
        let widest = text.lines().map(UnicodeWidthStr::width).max();
        widest.unwrap_or(0).saturating_sub(columns)
    };
    let whole = bindings(list, all, now);
    if excess(&whole) == 0 {
        return whole;
    }
    let narrow = bindings_with(list, all, now, false, MAX_REASON_WIDTH);
    match excess(&narrow) {
        0 => narrow,
        over => {
            let reasons = list
                .iter()
                .map(|b| reason(b.borrow(), MAX_REASON_WIDTH).width());
            let room = reasons.max().unwrap_or(0).saturating_sub(over);
            bindings_with(list, all, now, false, room.max(MIN_REASON_WIDTH))
        }
    }
}

fn bindings_with(
    list: &[impl Borrow<ConstraintPolicyBinding>],
    all: bool,
    now: Timestamp,
    with_targets: bool,
    reason_width: usize,
) -> String {
    let list: Vec<&ConstraintPolicyBinding> = list.iter().map(Borrow::borrow).collect();
    let changed = |binding: &ConstraintPolicyBinding| {
        let status = binding.status.as_ref();
        let changed = status.and_then(|s| s.last_compliance_change_timestamp.as_ref());
        age::since_time(changed, now)
    };
    let columns: [Column<'_, &ConstraintPolicyBinding>; 7] = [
        ("NAME", &|binding| binding.name_any()),
        ("OFFER", &|binding| binding.spec.offer.clone()),
        ("STATUS", &|binding| binding.compliance().name().to_owned()),
        ("REASON", &|binding| reason(binding, reason_width)),
        ("TARGETS", &|binding| targets(binding)),
        ("CHANGED", &|binding| changed(binding)),
        ("AGE", &|binding| age_of(*binding, now)),
    ];
    let mut columns = columns.to_vec();
    columns.retain(|(title, _)| with_targets || *title != "TARGETS");
    with_namespace(all, &list, &columns)
}

fn reason(binding: &ConstraintPolicyBinding, width: usize) -> String {
    let status = binding.status.as_ref();
    let reason = status.map(|s| plain(&s.first_reason)).unwrap_or_default();
    cut(&reason, width)
}

/// Returns the targets, such as "source=Pod/client destination=Pod/server".
fn targets(binding: &ConstraintPolicyBinding) -> String {
    let own = binding.namespace().unwrap_or_default();
    let each = binding.spec.targets.iter();
    let texts: Vec<String> = each
        .map(|(name, target)| format!("{name}={}", reference(target, &own)))
        .collect();
    texts.join(" ")
}

/// Returns a rule, such as "latency 5ms/20ms": the request, then the limit.
fn rule(rule: &PolicyRule) -> String {
    let values: Vec<&str> = [&rule.request, &rule.limit]
        .into_iter()
        .map(|v| v.0.as_str())
        .collect();
    match values[..] {
        ["", ""] => rule.name.clone(),
        [request, ""] => format!("{} {request}", rule.name),
        _ => format!("{} {}", rule.name, values.join("/")),
    }
}

/// Returns the condition Ready, with the reason unless it is True.
fn ready(offer: &ConstraintPolicyOffer) -> String {
    let conditions = offer.status.iter().flat_map(|s| &s.conditions);
    let ready = conditions.into_iter().find(|c| c.type_ == "Ready");
    match ready {
        None => String::new(),
        Some(c) if c.status == "True" || c.reason.is_empty() => c.status.clone(),
        Some(c) => format!("{} ({})", c.status, c.reason),
    }
}

/// Renders a table whose first column is the namespace if there are several.
fn with_namespace<'k, K: ResourceExt>(
    all: bool,
    list: &[&'k K],
    columns: &[Column<'_, &'k K>],
) -> String {
    let namespace: Column<'_, &'k K> = ("NAMESPACE", &|object| {
        object.namespace().unwrap_or_default()
    });
    let first = all.then_some(namespace).into_iter();
    table(
        list,
        &first.chain(columns.iter().copied()).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bindings::sort_key, tests::fixtures};

    #[test]
    fn bindings_table_for_one_and_all_namespaces() {
        let mut list = fixtures::bindings();
        list.sort_by_key(sort_key);
        insta::assert_snapshot!("bindings_all", bindings(&list, true, fixtures::now()));
        list.retain(|b| b.namespace().as_deref() == Some("vision"));
        insta::assert_snapshot!("bindings", bindings(&list, false, fixtures::now()));
    }

    #[test]
    fn narrow_table_drops_targets_then_cuts_reasons() {
        let list = fixtures::bindings();
        let width = |text: &str| text.lines().map(UnicodeWidthStr::width).max().unwrap();
        let within = |columns| bindings_within(&list, false, fixtures::now(), columns);
        assert!(within(300).contains("TARGETS"));
        assert!(within(220).contains("TARGETS"));
        let text = within(150);
        assert!(
            !text.contains("TARGETS") && text.contains("in this namespace"),
            "{text}"
        );
        for columns in [150, 120, 100, 80] {
            let text = within(columns);
            assert!(width(&text) <= columns, "{columns}:\n{text}");
        }
        assert!(within(40).contains("31ms to nor…"), "{}", within(40));
    }

    #[test]
    fn offers_table_shows_policies_and_status() {
        let list = fixtures::offers();
        insta::assert_snapshot!("offers", offers(&list, false, fixtures::now()));
        insta::assert_snapshot!("offers_all", offers(&list, true, fixtures::now()));
    }

    #[test]
    fn policies_table_shows_rules() {
        let list = fixtures::policies();
        insta::assert_snapshot!("policies", policies(&list, false, fixtures::now()));
        insta::assert_snapshot!("policies_all", policies(&list, true, fixtures::now()));
    }
}
