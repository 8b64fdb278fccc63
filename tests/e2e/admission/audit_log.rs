//! A real audit log: the webhook that changed a pod, its rule, and webhooks not called.

use std::path::Path;

use super::{gpu_sharing::SLICES, mutation_policies::*, *};

/// Audit logging of pods at level Metadata.
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
fn annotations(world: &AdmissionCluster, pod: &str) -> Value {
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
async fn audit_log_names_the_webhook_and_the_rule() {
    let plane = ControlPlane::start_with(logged).await.unwrap();
    let mut world = AdmissionCluster::on(plane, &[]).await.unwrap();
    let jobs = [SLICES[0], JOBS[0], JOBS[1]];
    world.install_webhooks(&jobs, &world.url()).await.unwrap();
    in_force(&world).await;
    let rules = json!({"rules": [{"namespaces": ["elsewhere"], "sliceRatio": 2},
        {"labelSelector": {"app": "train"}, "workloadType": "training"}]});
    gpu_sharing::policy(&world, &rules.to_string()).await;
    let labels = json!({"app": "train"});
    let train = |name: &str| gpu_sharing::pod("default", name, json!({}), labels.clone());
    let sliced = |response: &objects::Response| {
        response.body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu-shared"]
            == "8"
    };
    gpu_sharing::until(&world, "the policy counts", &train("probe"), sliced).await;

    let response = gpu_sharing::create(&world, &train("train"), false).await;
    assert_eq!(response.status, 201, "{response:?}");
    let audit = annotations(&world, "train");
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
        assert_eq!(audit[key], text, "{key} {audit:#}");
    }
    let why = audit["gpu-slices.tautline.io/why"]
        .as_str()
        .unwrap_or_default();
    assert!(why.contains("rules[1] matches"), "{audit:#}");

    let bad = json!({"castops.io/optimize": "true", "castops.io/slice-ratio": "65"});
    let refused = gpu_sharing::pod("default", "refused", bad, json!({}));
    assert_eq!(
        gpu_sharing::create(&world, &refused, false).await.status,
        422
    );
    let audit = annotations(&world, "refused");
    assert_eq!(
        audit["gpu-slices.tautline.io/outcome"], "refuse",
        "{audit:#}"
    );
    let reason = audit["gpu-slices.tautline.io/reason"].as_str();
    assert!(
        reason.unwrap_or_default().contains("slice-ratio"),
        "{audit:#}"
    );

    // The server is down: failurePolicy Ignore admits the pod, and the log shows that.
    let policies: Api<tautline_api::MutationPolicy> = Api::all(world.client().clone());
    policies.delete("team", &Default::default()).await.unwrap();
    let check = async || {
        let hooks = reapply::webhooks(&world).await;
        let rules = hooks[0]["rules"].as_array();
        rules.is_none_or(Vec::is_empty).then_some(())
    };
    let what = "the policy webhook is not called";
    eventually(what, PATIENCE, check, async || world.state()).await;
    world.server.process.kill();
    let passed = |response: &objects::Response| response.status == 201;
    gpu_sharing::until(&world, "pods pass", &train("probe"), passed).await;
    let response = gpu_sharing::create(&world, &train("unseen"), false).await;
    assert_eq!(response.status, 201, "{response:?}");
    let audit = annotations(&world, "unseen");
    let open = "failed-open.mutation.webhook.admission.k8s.io/round_0_index_";
    let all = audit.as_object().unwrap();
    let mut open = all.iter().filter(|(key, _)| key.starts_with(open));
    assert!(
        open.any(|(_, hook)| hook == "gpu-slices.tautline.io"),
        "{audit:#}"
    );
    assert!(
        audit["gpu-slices.tautline.io/outcome"].is_null(),
        "{audit:#}"
    );
}
