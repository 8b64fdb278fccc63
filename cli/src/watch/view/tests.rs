use clap::Parser;
use kube::core::DeserializeGuard;
use serde_json::json;

use kube_runtime::watcher::Event;

use super::*;
use crate::tests::fixtures;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    filter: FilterArgs,
}

fn view(args: &[&str]) -> BindingsView {
    let args = std::iter::once("x").chain(args.iter().copied());
    BindingsView::new(Scope::All, Line::parse_from(args).filter)
}

fn guarded(binding: ConstraintPolicyBinding) -> GuardedBinding {
    DeserializeGuard(Ok(binding))
}

fn with(name: &str, compliance: &str) -> ConstraintPolicyBinding {
    let status = json!({"compliance": compliance, "firstReason": "because\n"});
    fixtures::binding("vision", name, Some(status))
}

fn listed(view: &mut BindingsView, bindings: Vec<ConstraintPolicyBinding>) -> Vec<String> {
    let mut changes = changes_after(view, Event::Init);
    for binding in bindings {
        changes.extend(changes_after(view, Event::InitApply(guarded(binding))));
    }
    changes.extend(changes_after(view, Event::InitDone));
    changes
}

fn changes_after(view: &mut BindingsView, event: Event<GuardedBinding>) -> Vec<String> {
    let changes = view.apply(Update::Event(Box::new(event)), fixtures::now());
    changes.iter().map(ToString::to_string).collect()
}

fn size(columns: usize, rows: usize) -> Size {
    Size { columns, rows }
}

#[test]
fn view_reports_only_changes_of_compliance() {
    let mut view = view(&[]);
    let first = listed(&mut view, vec![with("a-1", "Compliant")]);
    assert_eq!(first, [""; 0], "the first listing is no change");
    let apply = |b: ConstraintPolicyBinding| Event::Apply(guarded(b));
    assert_eq!(
        changes_after(&mut view, apply(with("a-1", "Compliant"))),
        [""; 0]
    );
    assert_eq!(
        changes_after(&mut view, apply(with("a-1", "Violation"))),
        ["2026-01-02T12:00:00Z vision/a-1 Compliant -> Violation because"]
    );
    assert_eq!(
        changes_after(&mut view, apply(fixtures::binding("vision", "a-2", None))),
        ["2026-01-02T12:00:00Z vision/a-2 new -> Pending"]
    );
    assert_eq!(
        changes_after(&mut view, Event::Delete(guarded(with("a-2", "Pending")))),
        ["2026-01-02T12:00:00Z vision/a-2 Pending -> gone"]
    );
}

#[test]
fn view_reports_changes_during_a_lost_connection() {
    let mut view = view(&[]);
    listed(
        &mut view,
        vec![with("a-1", "Compliant"), with("a-2", "Limit")],
    );
    let now = fixtures::now();
    let earlier = "2026-01-02T11:59:30Z".parse().unwrap();
    view.apply(Update::Disconnected("refused".into()), earlier);
    view.apply(Update::Disconnected("still refused".into()), now);
    assert_eq!(view.connection_error().unwrap(), "still refused");
    let frame = view.frame(size(80, 24), now);
    assert_eq!(
        frame[1],
        "CONNECTION LOST 30s ago, trying again: still refused"
    );
    assert!(
        frame.iter().any(|l| l.contains("a-1")),
        "what is known stays"
    );
    let reported = listed(&mut view, vec![with("a-1", "Error"), with("a-3", "Limit")]);
    assert_eq!(
        reported,
        [
            "2026-01-02T12:00:00Z vision/a-2 Limit -> gone",
            "2026-01-02T12:00:00Z vision/a-1 Compliant -> Error because",
            "2026-01-02T12:00:00Z vision/a-3 new -> Limit because",
        ]
    );
    assert_eq!(view.connection_error(), None);
}

#[test]
fn filter_reports_bindings_that_enter_and_leave() {
    let mut view = view(&["--offer", "a", "--compliance", "violation"]);
    listed(
        &mut view,
        vec![with("a-1", "Compliant"), with("b-1", "Compliant")],
    );
    let apply = |b: ConstraintPolicyBinding| Event::Apply(guarded(b));
    assert_eq!(
        changes_after(&mut view, apply(with("b-1", "Violation"))),
        [""; 0]
    );
    assert_eq!(
        changes_after(&mut view, apply(with("a-1", "Limit"))),
        [""; 0]
    );
    assert_eq!(
        changes_after(&mut view, apply(with("a-1", "Violation"))).len(),
        1
    );
    assert_eq!(
        changes_after(&mut view, apply(with("a-1", "Compliant"))).len(),
        1
    );
}

#[test]
fn unreadable_binding_is_named_and_its_last_version_stays() {
    let mut view = view(&[]);
    listed(&mut view, vec![with("a-1", "Violation")]);
    let bad = json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyBinding",
        "metadata": {"namespace": "vision", "name": "a-1"}, "spec": {"targets": {}},
    });
    let bad: GuardedBinding = serde_json::from_value(bad).unwrap();
    assert_eq!(changes_after(&mut view, Event::Apply(bad)), [""; 0]);
    let frame = view.frame(size(80, 24), fixtures::now());
    assert!(
        frame[1].starts_with("1 cannot be read: vision/a-1: ") && frame[1].contains("offer"),
        "{frame:?}"
    );
    assert!(frame[3].contains("Violation"), "{frame:?}");
    let readable = Event::Apply(guarded(with("a-1", "Limit")));
    assert_eq!(changes_after(&mut view, readable).len(), 1);
    let frame = view.frame(size(80, 24), fixtures::now());
    assert!(frame[1].starts_with("NAMESPACE"), "{frame:?}");
}

#[test]
fn a_frame_fits_the_terminal() {
    let mut view = view(&[]);
    let now = fixtures::now();
    insta::assert_snapshot!("frame_reading", view.frame(size(80, 24), now).join("\n"));
    listed(&mut view, fixtures::bindings());
    insta::assert_snapshot!("frame", view.frame(size(240, 24), now).join("\n"));
    insta::assert_snapshot!("frame_small", view.frame(size(60, 6), now).join("\n"));
    // 7 bindings, a header above the table and its own.
    let exact = view.frame(size(80, 9), now);
    assert_eq!(exact.len(), 9);
    assert!(!exact[8].contains("more"), "{exact:?}");
    for rows in 1..12 {
        for columns in [1, 7, 80] {
            let frame = view.frame(size(columns, rows), now);
            assert!(frame.len() <= rows, "{rows}");
            assert!(frame.iter().all(|l| l.chars().count() <= columns));
        }
    }
}

#[test]
fn header_alone_for_an_empty_list() {
    let mut view = view(&["--compliance", "limit"]);
    listed(&mut view, vec![with("a-1", "Compliant")]);
    assert_eq!(
        view.frame(size(80, 24), fixtures::now()),
        ["2026-01-02T12:00:00Z  all namespaces, bindings: 1 (1 Compliant); only Limit"]
    );
}
