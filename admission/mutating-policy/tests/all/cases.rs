//! Our engine on every case that a real API server replays in the end-to-end
//! tests.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests are no tests to the lint"
)]

#[path = "../support/case.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest")]
mod case;

use std::path::Path;

use case::{Case, Expect, Group};
use serde_json::Value;
use tautline_mutating_policy::{
    Outcome, Policies, Request, Settings, StaticCluster, Verdict, defaults,
};

#[test]
fn every_case_ends_as_it_says() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let cases = Case::all(&dir);
    assert!(cases.len() >= 60, "only {} cases", cases.len());
    let failed: Vec<String> = cases.iter().filter_map(wrong).collect();
    let all = failed.len();
    assert!(failed.is_empty(), "{all} cases:\n{}", failed.join("\n"));
}

/// What is wrong with what our engine makes of a case.
fn wrong(case: &Case) -> Option<String> {
    let (policies, report) = Policies::load(&case.manifests(&Group::Ours));
    let faults: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
    let faults = faults.join("\n");
    if let Expect::Invalid(text) = &case.expect {
        let taken = faults.is_empty() || !faults.contains(text);
        return taken.then(|| format!("{}: its faults are {faults:?}", case.name));
    }
    if !faults.is_empty() {
        return Some(format!("{}: {faults}", case.name));
    }
    let mut object = case.object();
    let mut request = Request::create(object.clone())?;
    defaults::set(&request.kind, &mut object);
    request.object = object.clone().into();
    if let Some(old) = case.old() {
        request.operation = "UPDATE".to_owned();
        request.old_object = old.into();
    }
    let mut world = case.params();
    world.push(case.namespace());
    let settings = Settings {
        full_detail: true,
        ..Settings::default()
    };
    let outcome = policies.mutate(&request, &StaticCluster::from_iter(world), &settings);
    let ends = ended(&outcome, &object, &case.expect);
    ends.map(|how| format!("{}: {how}", case.name))
}

fn ended(outcome: &Outcome, object: &Value, expect: &Expect) -> Option<String> {
    match (&outcome.verdict, expect) {
        (Verdict::Unchanged, Expect::Unchanged) => None,
        (
            Verdict::Changed {
                object: after,
                patch,
            },
            Expect::Patch(expected),
        ) => {
            let operations: json_patch::Patch = serde_json::from_value(expected.clone()).unwrap();
            let (mut wanted, mut patched) = (object.clone(), object.clone());
            if let Err(error) = json_patch::patch(&mut wanted, &operations) {
                return Some(format!("its own patch does not apply: {error}"));
            }
            json_patch::patch(&mut patched, patch).unwrap();
            assert_eq!(patched, **after, "the patch leads elsewhere");
            let differs = wanted != **after;
            let shown = || serde_json::to_string(patch).unwrap();
            differs.then(|| format!("changed by {}", shown()))
        }
        (Verdict::Refused(refusal), Expect::Refused(code, text))
            if refusal.code == *code && refusal.message.contains(text) =>
        {
            None
        }
        _ => Some(format!("{:?}\n  {:?}", outcome.verdict, outcome.faults)),
    }
}
