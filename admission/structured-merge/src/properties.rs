//! Tests the merge with random objects and configurations of Pods, Deployments and Services.

use fastrand::Rng;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Schema, Schemas, apply, check_apply, element::identity, generate, scalar::normalized};

fn kinds() -> impl Strategy<Value = (Schema, Rng)> {
    let kinds = [
        ("", "v1", "Pod"),
        ("apps", "v1", "Deployment"),
        ("", "v1", "Service"),
    ];
    let of = |(group, version, kind)| Schemas::bundled().kind(group, version, kind);
    let schemas: Vec<Schema> = kinds.into_iter().filter_map(of).collect();
    assert_eq!(schemas.len(), 3);
    (prop::sample::select(schemas), any::<u64>())
        .prop_map(|(schema, seed)| (schema, Rng::with_seed(seed)))
}

/// Returns whether all of `before` is still in `after`, values aside.
fn nothing_is_lost(schema: &Schema, before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().all(|(name, before)| {
            after
                .get(name)
                .is_some_and(|after| match schema.field(name) {
                    Some(field) => nothing_is_lost(&field, before, after),
                    None => before == after,
                })
        }),
        (Value::Array(before), Value::Array(after)) => {
            let Some(list) = schema.type_ref().list() else {
                return false;
            };
            let of = |each| identity(&schema.definitions, list, each).ok().flatten();
            let after: Vec<_> = after.iter().map(of).collect();
            before
                .iter()
                .map(of)
                .all(|each| each.is_none() || after.contains(&each))
        }
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn empty_configuration_changes_nothing((schema, mut rng) in kinds()) {
        let live = generate::live(&schema, &mut rng);
        prop_assert_eq!(apply(&schema, &live, &json!({})), Ok(live.clone()));
        let named = json!({"apiVersion": "of/another", "kind": "Thing"});
        prop_assert_eq!(apply(&schema, &live, &named), Ok(live));
    }

    #[test]
    fn merge_is_idempotent((schema, mut rng) in kinds()) {
        let live = generate::live(&schema, &mut rng);
        let configuration = generate::configuration(&schema, &live, &mut rng);
        if let Ok(once) = apply(&schema, &live, &configuration) {
            let twice = apply(&schema, &once, &configuration);
            prop_assert_eq!(twice, Ok(once));
        }
    }

    #[test]
    fn merged_object_matches_its_schema((schema, mut rng) in kinds()) {
        let live = generate::live(&schema, &mut rng);
        let configuration = generate::configuration(&schema, &live, &mut rng);
        if let Ok(merged) = apply(&schema, &live, &configuration) {
            let again = generate::configuration(&schema, &merged, &mut rng);
            let expected = apply(&schema, &merged, &again);
            let made = check_apply(&schema, &merged, again, true).map(|checked| {
                checked.map(|checked| {
                    let mut object = merged.clone();
                    checked.merge_into(&mut object);
                    object
                })
            });
            let changed = expected.map(|e| (e != merged).then_some(e));
            prop_assert_eq!(made, changed);
        }
    }

    #[test]
    fn merge_removes_nothing((schema, mut rng) in kinds()) {
        // Written whole, so that keys compare as they are.
        let live = normalized(generate::live(&schema, &mut rng));
        let configuration = generate::configuration(&schema, &live, &mut rng);
        if let Ok(merged) = apply(&schema, &live, &configuration) {
            prop_assert!(nothing_is_lost(&schema, &live, &merged), "{live}\n{configuration}\n{merged}");
        }
    }

    #[test]
    fn merge_into_nothing_is_the_configuration((schema, mut rng) in kinds()) {
        let live = generate::live(&schema, &mut rng);
        let configuration = generate::configuration(&schema, &live, &mut rng);
        if let Ok(merged) = apply(&schema, &json!({}), &configuration) {
            prop_assert_eq!(merged, normalized(configuration));
        }
    }

    #[test]
    fn random_values_do_not_panic((schema, mut rng) in kinds()) {
        let values: Vec<Value> = (0..4).map(|_| generate::live(&schema, &mut rng)).collect();
        for each in &values {
            _ = apply(&schema, each, &values[0]);
            _ = apply(&schema, &values[1]["spec"], each);
        }
    }
}

#[test]
fn most_random_configurations_apply() {
    let schema = Schemas::bundled().kind("", "v1", "Pod");
    let schema = schema.expect("the bundled schemas have pods");
    let mut rng = Rng::with_seed(7);
    let applied = (0..1_000)
        .filter(|_| {
            let live = generate::live(&schema, &mut rng);
            let configuration = generate::configuration(&schema, &live, &mut rng);
            apply(&schema, &live, &configuration).is_ok_and(|merged| merged != live)
        })
        .count();
    assert!((400..950).contains(&applied), "{applied} of 1000");
}
