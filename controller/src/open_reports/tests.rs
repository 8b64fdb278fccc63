use serde_json::json;
use tautline_api::constraint::{Compliance, PolicyDetail, RuleDetail};
use tautline_core::{Index, index::Object, model::Offer as ModelOffer, reference::Reference};

use super::*;
use crate::binding_spec::{BindingSpec, BindingStatus};

fn spec(name: &str) -> BindingSpec {
    BindingSpec {
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid of {name}").into(),
        offer: "near".into(),
        targets: [("source".into(), Reference::pod("shop", name))].into(),
        ..BindingSpec::default()
    }
}

fn status(compliance: Compliance, reason: &str) -> BindingStatus {
    let rule = |rule: &str, compliance| RuleDetail {
        rule: rule.to_owned(),
        compliance,
        reason: reason.to_owned(),
        provider: "net/prober".to_owned(),
    };
    BindingStatus {
        compliance,
        first_reason: reason.to_owned(),
        details: vec![
            PolicyDetail {
                policy: "fine".to_owned(),
                compliance: Compliance::Compliant,
                ..PolicyDetail::default()
            },
            PolicyDetail {
                policy: "close".to_owned(),
                compliance,
                reason: reason.to_owned(),
                rule_details: vec![
                    rule("jitter", Compliance::Compliant),
                    rule("latency", compliance),
                ],
            },
        ],
        ..BindingStatus::default()
    }
}

fn applied(name: &str, compliance: Compliance, reason: &str) -> BindingEvent {
    BindingEvent::Applied(Box::new((spec(name), status(compliance, reason))))
}

/// With the offer shop/near.
fn reports(now: Instant) -> Reports {
    let mut reports = Reports::default();
    reports.set_offers(&snapshot(&["near"]), now);
    reports
}

fn snapshot(offers: &[&str]) -> Arc<Snapshot> {
    let mut index = Index::default();
    for name in offers {
        index.apply(Object::Offer(ModelOffer {
            namespace: "shop".into(),
            name: (*name).into(),
            uid: format!("uid of {name}").into(),
            ..ModelOffer::default()
        }));
    }
    index.snapshot().into()
}

#[test]
fn report_has_the_worst_bindings_first() {
    let now = Instant::now();
    let mut reports = reports(now);
    for (name, compliance, reason) in [
        ("a", Compliance::Compliant, "3 ms to db-0"),
        ("b", Compliance::Violation, "31 ms to db-0 > 20 ms"),
        ("c", Compliance::Error, "ProviderFailed"),
        ("d", Compliance::Limit, "12 ms to db-0 > 5 ms"),
        ("e", Compliance::Pending, ""),
    ] {
        reports.apply(applied(name, compliance, reason), now);
    }
    let write = reports.next_write(now).unwrap();
    assert_eq!((&*write.namespace, &*write.name), ("shop", "tautline-near"));
    insta::assert_snapshot!(serde_json::to_string_pretty(&write.content).unwrap());
    assert_eq!(reports.next_write(now), None);
}

#[test]
fn report_leaves_out_the_best_of_many_and_counts_them() {
    let now = Instant::now();
    let mut reports = reports(now);
    for i in 0..450 {
        let name = format!("pod-{i:03}");
        reports.apply(applied(&name, Compliance::Compliant, ""), now);
    }
    reports.apply(applied("zz", Compliance::Violation, "too far"), now);
    let content = reports.next_write(now).unwrap().content;
    let results = content["results"].as_array().unwrap();
    assert_eq!(results.len(), 400);
    assert_eq!(results[0]["properties"]["binding"], "zz");
    assert_eq!(content["summary"]["pass"], 450);
    let left_out = &content["metadata"]["annotations"]["tautline.io/results-left-out"];
    assert_eq!(left_out, "51");
}

#[test]
fn report_stays_below_what_etcd_takes() {
    let now = Instant::now();
    let mut reports = reports(now);
    for i in 0..450 {
        let mut spec = spec(&format!("{i:0>253}"));
        spec.targets = (0..2)
            .map(|t| {
                (
                    format!("t{t}").into(),
                    Reference::pod("shop", &"n".repeat(253)),
                )
            })
            .collect();
        let status = status(Compliance::Violation, &"x".repeat(5000));
        reports.apply(BindingEvent::Applied(Box::new((spec, status))), now);
    }
    let size = reports.next_write(now).unwrap().content.to_string().len();
    assert!(size < 1 << 20, "{size}");
}

#[test]
fn report_leaves_out_objects_of_other_clusters() {
    let now = Instant::now();
    let mut reports = reports(now);
    let (mut spec, status) = (spec("a"), status(Compliance::Compliant, ""));
    let in_east = "east:shop:v1:Pod:db-0".parse().unwrap();
    spec.targets.insert("db".into(), in_east);
    reports.apply(BindingEvent::Applied(Box::new((spec, status))), now);
    let content = reports.next_write(now).unwrap().content;
    let resources = content["results"][0]["resources"].as_array().unwrap();
    assert_eq!(resources.len(), 1);
    assert_eq!(resources[0]["name"], "a");
}

#[test]
fn report_without_bindings_has_no_results() {
    let now = Instant::now();
    let content = reports(now).next_write(now).unwrap().content;
    assert_eq!(content["results"], json!([]));
    assert_eq!(content["summary"]["fail"], 0);
}

#[test]
fn report_is_written_only_after_a_change_and_its_period() {
    let start = Instant::now();
    let mut reports = reports(start);
    reports.apply(applied("a", Compliance::Compliant, "3 ms"), start);
    let write = reports.next_write(start).unwrap();
    reports.written(&write, start);
    // The same again.
    reports.apply(applied("a", Compliance::Compliant, "3 ms"), start);
    assert_eq!(reports.next_time(), None);
    reports.apply(applied("a", Compliance::Limit, "6 ms"), start);
    assert_eq!(reports.next_time(), Some(start + MIN_WRITE_INTERVAL));
    assert_eq!(reports.next_write(start), None);
    // Back to what was written: nothing to write.
    reports.apply(applied("a", Compliance::Compliant, "3 ms"), start);
    assert_eq!(reports.next_write(start + MIN_WRITE_INTERVAL), None);
    assert_eq!(reports.next_time(), None);
}

#[test]
fn report_follows_deleted_and_listed_bindings() {
    let now = Instant::now();
    let mut reports = reports(now);
    for name in ["a", "b", "c"] {
        reports.apply(applied(name, Compliance::Compliant, ""), now);
    }
    let uid: Box<str> = "uid of another".into();
    reports.apply(BindingEvent::Deleted("shop/a".into(), uid), now);
    reports.apply(
        BindingEvent::Deleted("shop/b".into(), "uid of b".into()),
        now,
    );
    let write = reports.next_write(now).unwrap();
    assert_eq!(write.content["summary"]["pass"], 2);
    let list = vec![(spec("c"), status(Compliance::Violation, "far"))];
    reports.apply(BindingEvent::All(list), now);
    let summary = reports.next_write(now).unwrap().content["summary"].clone();
    assert_eq!((&summary["pass"], &summary["fail"]), (&json!(0), &json!(1)));
}

#[test]
fn report_of_a_deleted_offer_is_not_written() {
    let now = Instant::now();
    let mut reports = reports(now);
    reports.apply(applied("a", Compliance::Compliant, ""), now);
    reports.set_offers(&snapshot(&[]), now);
    assert_eq!(reports.next_write(now), None);
    reports.apply(
        BindingEvent::Deleted("shop/a".into(), "uid of a".into()),
        now,
    );
    assert!(reports.offers.is_empty() && reports.rows.is_empty());
}

#[test]
fn report_is_tried_again_later_each_time_and_others_wait() {
    let mut now = Instant::now();
    let mut reports = reports(now);
    reports.set_offers(&snapshot(&["near", "other"]), now);
    for wait in [5, 10, 20] {
        let write = reports.next_write(now).unwrap();
        reports.failed(&write, now);
        assert_eq!(reports.next_write(now), None);
        assert_eq!(reports.next_time(), Some(now + Duration::from_secs(wait)));
        now += Duration::from_secs(wait);
    }
    let write = reports.next_write(now).unwrap();
    reports.written(&write, now);
    let other = reports.next_write(now).unwrap();
    assert_ne!(other.offer, write.offer);
}

#[test]
fn report_names_are_valid_and_distinct() {
    let long = "o".repeat(253);
    let name = report::name(&long);
    assert_eq!(name.len(), 253);
    assert_ne!(name, report::name(&format!("{}p", "o".repeat(252))));
    assert_eq!(report::name("near"), "tautline-near");
}

#[test]
fn kind_is_missing_unless_the_namespace_is() {
    assert!(is_kind_missing(
        404,
        "the server could not find the requested resource"
    ));
    assert!(!is_kind_missing(404, "namespaces \"shop\" not found"));
    assert!(!is_kind_missing(403, "forbidden"));
}
