use proptest::{collection::vec, option, prelude::*};
use serde_json::{Map, Value, json};

use crate::{
    Decision, MAX_RATIO, Names, Policy, Source, Unchanged, WORKLOADS, decide,
    tests::fixtures::{mutation, patched},
};

/// A container's resources, with cards and units in limits, requests or both.
fn resources() -> impl Strategy<Value = (i64, i64, Value)> {
    let amounts = (
        0i64..1_000_000,
        option::of(0i64..1_000),
        1u8..4,
        any::<bool>(),
    );
    amounts.prop_map(|(cards, units, halves, milli)| {
        let mut map = Map::new();
        for (bit, half) in [(1, "limits"), (2, "requests")] {
            if halves & bit == 0 {
                continue;
            }
            let text = if milli {
                format!("{cards}000m")
            } else {
                cards.to_string()
            };
            let mut of = json!({"cpu": "1", "nvidia.com/gpu": text});
            if let Some(units) = units {
                of["nvidia.com/gpu-shared"] = json!(units);
            }
            map.insert(half.into(), of);
        }
        (cards, units.unwrap_or(0), Value::Object(map))
    })
}

fn pod(init: &[(i64, i64, Value)], main: &[(i64, i64, Value)], ratio: i64) -> Value {
    let list = |of: &[(i64, i64, Value)]| -> Vec<Value> {
        let containers = of.iter().enumerate();
        let named = containers.map(|(i, c)| json!({"name": format!("c{i}"), "resources": c.2}));
        named.collect()
    };
    json!({
        "metadata": {"annotations": {
            "castops.io/optimize": "true", "castops.io/slice-ratio": ratio.to_string(),
        }},
        "spec": {"initContainers": list(init), "containers": list(main), "nodeName": "n"},
    })
}

fn untouched(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let Some(halves) = container["resources"].as_object_mut() else {
                continue;
            };
            for of in halves.values_mut().filter_map(Value::as_object_mut) {
                of.remove("nvidia.com/gpu");
                of.remove("nvidia.com/gpu-shared");
            }
            halves.retain(|_, of| of != &json!({}));
        }
    }
    pod
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9]{0,4}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        "(rules|namespaces|labelSelector|workloadType|sliceRatio)",
        "(metadata|annotations|labels|spec|containers|initContainers|resources|limits|requests)",
        "(nvidia.com/gpu|castops.io/optimize|castops.io/slice-ratio)",
    ];
    leaf.prop_recursive(8, 64, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key.clone(), inner), 0..4).prop_map(|pairs| pairs.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn cards_times_ratio_and_nothing_else(
        init in vec(resources(), 0..3), main in vec(resources(), 0..4), ratio in 1..=MAX_RATIO,
    ) {
        let names = Names::default();
        let before = pod(&init, &main, ratio);
        let decision = decide(&names, None, "default", &before);
        if init.iter().chain(&main).all(|(cards, ..)| *cards == 0) {
            prop_assert_eq!(decision, Decision::Unchanged(Unchanged::NoCards));
            return Ok(());
        }
        let after = patched(&before, &mutation(decision));
        for (list, of) in [("initContainers", &init), ("containers", &main)] {
            for (i, (cards, units, was)) in of.iter().enumerate() {
                let now = &after["spec"][list][i]["resources"];
                if *cards == 0 {
                    prop_assert_eq!(now, was);
                    continue;
                }
                let want = json!((cards * ratio + units).to_string());
                for half in ["limits", "requests"] {
                    prop_assert_eq!(&now[half]["nvidia.com/gpu-shared"], &want);
                    prop_assert!(now[half].get("nvidia.com/gpu").is_none());
                }
            }
        }
        prop_assert_eq!(untouched(&after), untouched(&before));
        // A second review changes nothing.
        let again = decide(&names, None, "default", &after);
        prop_assert_eq!(again, Decision::Unchanged(Unchanged::NoCards));
    }

    #[test]
    fn the_first_rule_that_matches_counts(
        rules in vec((option::of(0u8..3), option::of(0u8..3), 1..=MAX_RATIO), 0..6),
        namespace in 0u8..3, label in option::of(0u8..3),
    ) {
        let list: Vec<Value> = rules.iter().map(|(namespace, label, ratio)| {
            let mut rule = json!({"sliceRatio": ratio});
            if let Some(n) = namespace {
                rule["namespaces"] = json!([format!("n{n}"), "other"]);
            }
            if let Some(l) = label {
                rule["labelSelector"] = json!({"l": l.to_string()});
            }
            rule
        }).collect();
        let policy = Policy::parse(&json!({"rules": list}).to_string()).unwrap();
        let mut pod = crate::tests::fixtures::pod("1");
        if let Some(l) = label {
            pod["metadata"]["labels"] = json!({"l": l.to_string()});
        }
        let first = rules.iter().position(|(n, l, _)| {
            n.is_none_or(|n| n == namespace) && l.is_none_or(|l| label == Some(l))
        });
        let decision = decide(&Names::default(), Some(&policy), &format!("n{namespace}"), &pod);
        match first {
            None => prop_assert!(matches!(decision, Decision::Unchanged(_))),
            Some(at) => {
                let mutation = mutation(decision);
                prop_assert_eq!(mutation.source, Source::RuleRatio(at));
                prop_assert_eq!(mutation.ratio, rules[at].2);
            }
        }
    }

    #[test]
    fn the_strongest_ratio_counts(
        number in option::of(1..=MAX_RATIO), workload in option::of(0usize..4),
        rule_ratio in 0..=MAX_RATIO, rule_workload in option::of(0usize..4),
        opted_in in any::<bool>(),
    ) {
        let mut pod = crate::tests::fixtures::pod("1");
        let annotations = &mut pod["metadata"]["annotations"];
        if opted_in {
            annotations["castops.io/optimize"] = json!("true");
        }
        if let Some(number) = number {
            annotations["castops.io/slice-ratio"] = json!(number.to_string());
        }
        if let Some(at) = workload {
            annotations["castops.io/workload-type"] = json!(WORKLOADS[at].0);
        }
        let mut rule = json!({"sliceRatio": rule_ratio});
        if let Some(at) = rule_workload {
            rule["workloadType"] = json!(WORKLOADS[at].0);
        }
        let policy = Policy::parse(&json!({"rules": [rule]}).to_string()).unwrap();
        let of_rule = [
            (rule_ratio > 0).then_some(rule_ratio),
            rule_workload.map(|at| WORKLOADS[at].1),
        ];
        let of_rule = of_rule.into_iter().flatten().next().filter(|_| !opted_in);
        let own = number.or(workload.map(|at| WORKLOADS[at].1));
        let mutation = mutation(decide(&Names::default(), Some(&policy), "default", &pod));
        prop_assert_eq!(mutation.ratio, own.or(of_rule).unwrap_or(1));
        prop_assert_eq!(mutation.policy_enforced(), !opted_in);
    }

    #[test]
    fn any_text_parses_or_errs(text in ".{0,200}") { let _ = Policy::parse(&text); }

    #[test]
    fn any_json_is_decided(policy in json_value(), pod in json_value()) {
        let policy = Policy::parse(&policy.to_string()).ok();
        let _ = decide(&Names::default(), policy.as_ref(), "default", &pod);
    }
}
