//! A real audit log: who changed my pod, by which rule, and who was not asked.

use std::path::Path;

use super::{policies::*, slices::SLICES, *};

/// The log that a policy of level Metadata makes, for pods.
fn logged(dir: &Path) -> Result<Vec<String>> {
    let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
        "omitStages": ["RequestReceived"], "rules": [
            {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
            {"level": "None"}]});
    let path = dir.join("audit-policy.json");
    std::fs::write(&path, policy.to_string())?;
    Ok(vec![
        format!("--audit-policy-file={}", path.display()),
        format!("--audit-log-path={}", dir.join("audit.log").display()),
        // Written before the answer.
        "--audit-log-mode=blocking-strict".to_owned(),
    ])
}

/// The annotations of the creation of a pod.
fn annotations(world: &Admitting, pod: &str) -> Value {
    let log = std::fs::read_to_string(world.plane.dir.path().join("audit.log")).unwrap();
    let events = log
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap());
    let mut of_pod = events.filter(|e| e["objectRef"]["name"] == pod);
    let event = of_pod
        .next()
        .unwrap_or_else(|| panic!("{pod} is not in\n{log}"));
    event["annotations"].clone()
}

#[tokio::test]
async fn the_audit_log_says_who_changed_a_pod_and_why() {
    let alone = crate::ALONE.lock().await;
    let plane = ControlPlane::start_with(logged).await.unwrap();
    let mut world = Admitting::on(alone, plane, &[]).await.unwrap();
    let jobs = [SLICES[0], JOBS[0], JOBS[1]];
    world.ask(&jobs, &world.url()).await.unwrap();
    in_force(&world).await;
    let rules = json!({"rules": [{"namespaces": ["elsewhere"], "sliceRatio": 2},
        {"labelSelector": {"app": "train"}, "workloadType": "training"}]});
    slices::policy(&world, &rules.to_string()).await;
    let labels = json!({"app": "train"});
    let train = |name: &str| slices::pod("default", name, json!({}), labels.clone());
    let sliced = |said: &objects::Said| {
        said.body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu-shared"] == "8"
    };
    slices::until(&world, "the policy counts", &train("probe"), sliced).await;

    let said = slices::create(&world, &train("train"), false).await;
    assert_eq!(said.status, 201, "{said:?}");
    let told = annotations(&world, "train");
    for (key, text) in [
        ("gpu-slices.tautline.io/outcome", "mutate"),
        ("gpu-slices.tautline.io/code", "SlicedByRule"),
        ("gpu-slices.tautline.io/rule", "rules[1]"),
        ("gpu-slices.tautline.io/ratio", "4"),
        ("gpu-slices.tautline.io/source", "rule-workload"),
        ("gpu-slices.tautline.io/reason", "warm 1 -> 4, main 2 -> 8"),
        ("mutation-policies.tautline.io/outcome", "mutate"),
        (
            "mutation-policies.tautline.io/changed-by",
            "team/team(default/team)",
        ),
    ] {
        assert_eq!(told[key], text, "{key} {told:#}");
    }
    let why = told["gpu-slices.tautline.io/why"]
        .as_str()
        .unwrap_or_default();
    assert!(why.contains("rules[1] matches"), "{told:#}");

    let bad = json!({"castops.io/optimize": "true", "castops.io/slice-ratio": "65"});
    let refused = slices::pod("default", "refused", bad, json!({}));
    assert_eq!(slices::create(&world, &refused, false).await.status, 422);
    let told = annotations(&world, "refused");
    assert_eq!(told["gpu-slices.tautline.io/outcome"], "refuse", "{told:#}");
    let reason = told["gpu-slices.tautline.io/reason"].as_str();
    assert!(
        reason.unwrap_or_default().contains("slice-ratio"),
        "{told:#}"
    );

    // Nobody answers: passed over where the failurePolicy says so, and told of.
    let policies: Api<tautline_api::MutationPolicy> = Api::all(world.client().clone());
    policies.delete("team", &Default::default()).await.unwrap();
    let check = async || {
        let hooks = applied::webhooks(&world).await;
        let rules = hooks[0]["rules"].as_array();
        rules.is_none_or(Vec::is_empty).then_some(())
    };
    let what = "nothing is asked for policies";
    eventually(what, PATIENCE, check, async || world.state()).await;
    world.server.process.kill();
    let passed = |said: &objects::Said| said.status == 201;
    slices::until(&world, "pods pass", &train("probe"), passed).await;
    let said = slices::create(&world, &train("unseen"), false).await;
    assert_eq!(said.status, 201, "{said:?}");
    let told = annotations(&world, "unseen");
    let open = "failed-open.mutation.webhook.admission.k8s.io/round_0_index_";
    let all = told.as_object().unwrap();
    let mut open = all.iter().filter(|(key, _)| key.starts_with(open));
    assert!(
        open.any(|(_, hook)| hook == "gpu-slices.tautline.io"),
        "{told:#}"
    );
    assert!(told["gpu-slices.tautline.io/outcome"].is_null(), "{told:#}");
}
