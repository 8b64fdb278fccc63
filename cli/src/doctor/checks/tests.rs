mod fixtures;
mod gpu;
mod installation;
mod rules;
mod tls;

use Level::{Problem, Warning};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use self::fixtures::{EXTENDER, certificate, healthy, of, pod, secret};
use super::*;
use crate::doctor::{
    cluster::FilterRequests,
    finding::{Level, not_checked, warning},
};

/// Level, check, and parts of the object, the text and the fix.
type Expected = (
    Level,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

#[track_caller]
fn finds(expected: Expected, break_it: impl FnOnce(&mut Cluster)) {
    let mut cluster = healthy();
    break_it(&mut cluster);
    let (level, check, object, text, fix) = expected;
    let documented = include_str!("../../../../docs/cli.md").contains(&format!("`{check}`"));
    assert!(documented, "{check} is not in docs/cli.md");
    let findings: Vec<Finding> = run(&cluster)
        .into_iter()
        .filter(|f| f.level != Level::Ok)
        .collect();
    let is_expected = |f: &Finding| {
        (f.level, f.check) == (level, check)
            && f.object.contains(object)
            && f.text.contains(text)
            && f.fix.contains(fix)
    };
    assert!(
        findings.iter().any(is_expected),
        "{expected:?} is not in\n{findings:#?}"
    );
}

/// Changes an object through its JSON.
fn edit<K: serde::Serialize + serde::de::DeserializeOwned + ResourceExt>(
    list: &mut Option<Vec<K>>,
    name: &str,
    change: impl Fn(&mut Value),
) {
    let object = list
        .iter_mut()
        .flatten()
        .find(|o| o.name_any() == name)
        .unwrap();
    let mut value = serde_json::to_value(&*object).unwrap();
    change(&mut value);
    *object = of(value);
}

fn remove<K: ResourceExt>(list: &mut Option<Vec<K>>, name: &str) {
    let list = list.as_mut().unwrap();
    let before = list.len();
    list.retain(|o| !o.name_any().starts_with(name));
    assert!(list.len() < before, "{name}");
}

fn extender_args(cluster: &mut Cluster, more: &[&str]) {
    edit(&mut cluster.deployments, "tautline-extender", |d| {
        let args = &mut d["spec"]["template"]["spec"]["containers"][0]["args"];
        args.as_array_mut()
            .unwrap()
            .extend(more.iter().map(|a| json!(a)));
    });
}

/// The extender serves with the files of a Secret instead of a generated certificate.
fn extender_files(cluster: &mut Cluster) {
    let (cert, key) = certificate(EXTENDER, (2027, 1, 1));
    extender_secret(cluster, &[("tls.crt", &cert), ("tls.key", &key)]);
    edit(&mut cluster.deployments, "tautline-extender", |d| {
        let spec = &mut d["spec"]["template"]["spec"];
        spec["containers"][0]["args"] = json!([
            "extender",
            "--tls-cert=/tls/tls.crt",
            "--tls-key=/tls/tls.key"
        ]);
        spec["containers"][0]["volumeMounts"] = json!([{"name": "tls", "mountPath": "/tls"}]);
        spec["volumes"] =
            json!([{"name": "tls", "secret": {"secretName": "tautline-extender-tls"}}]);
    });
}

fn extender_secret(cluster: &mut Cluster, data: &[(&str, &str)]) {
    let made = secret("tautline-extender-tls", data);
    cluster
        .secrets
        .insert("tautline-extender-tls".into(), Some(made));
}

fn web(cluster: &mut Cluster, change: impl Fn(&mut Value)) {
    edit(&mut cluster.offers, "web", change);
}

#[test]
fn healthy_installation_has_no_finding() {
    let findings = run(&healthy());
    let bad: Vec<&Finding> = findings.iter().filter(|f| f.level != Level::Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let mut checks: Vec<&str> = findings.iter().map(|f| f.check).collect();
    checks.sort_unstable();
    assert_eq!(
        checks,
        [
            "AgentsRun",
            "BindingsEvaluated",
            "CertificateValid",
            "ComponentsReady",
            "CrdsInstalled",
            "LeaseHeld",
            "LeaseHeld",
            "OffersUsable",
            "RightsGranted",
            "RulesProvided",
            "SchedulerCalls",
            "VersionsEqual",
            "WebhooksServed",
        ]
    );
}

#[test]
fn nothing_was_read_and_nothing_is_claimed() {
    let cluster = Cluster {
        unread: vec![not_checked("nodes", "forbidden", "ask")],
        ..Cluster::default()
    };
    let findings = run(&cluster);
    let expected = warning(
        "NotChecked",
        "nodes",
        "could not be checked: forbidden",
        "ask",
    );
    assert_eq!(findings, [expected]);
}

#[test]
fn each_part_may_be_unread_alone() {
    let parts: [fn(&mut Cluster); 15] = [
        |c| c.namespace_exists = None,
        |c| c.crds = None,
        |c| c.deployments = None,
        |c| c.daemon_sets = None,
        |c| c.pods = None,
        |c| c.leases = None,
        |c| c.secrets.clear(),
        |c| c.nodes = None,
        |c| c.services = None,
        |c| c.slices = None,
        |c| c.policies = None,
        |c| c.offers = None,
        |c| c.workload_pods = None,
        |c| c.webhooks = None,
        |c| c.rights = None,
    ];
    for (i, forget) in parts.into_iter().enumerate() {
        let mut cluster = healthy();
        forget(&mut cluster);
        let findings = run(&cluster);
        let bad: Vec<&Finding> = findings.iter().filter(|f| f.level != Level::Ok).collect();
        assert!(bad.is_empty(), "{i}: {bad:#?}");
    }
}

#[test]
fn odd_objects_are_no_panic() {
    let mut cluster = healthy();
    let empty = || of(json!({"metadata": {}}));
    cluster
        .deployments
        .as_mut()
        .unwrap()
        .push(of(json!({"metadata": {}})));
    cluster
        .daemon_sets
        .as_mut()
        .unwrap()
        .push(of(json!({"metadata": {}})));
    cluster
        .pods
        .as_mut()
        .unwrap()
        .push(of(json!({"metadata": {}})));
    cluster
        .leases
        .as_mut()
        .unwrap()
        .push(of(json!({"metadata": {}})));
    cluster.nodes.as_mut().unwrap().push(empty());
    cluster
        .services
        .as_mut()
        .unwrap()
        .push(of(json!({"metadata": {}})));
    cluster
        .workload_pods
        .as_mut()
        .unwrap()
        .push(of(json!({"metadata": {}})));
    edit(&mut cluster.leases, "tautline-controller", |l| {
        l["spec"] = json!({"holderIdentity": "a", "leaseDurationSeconds": -5,
                           "renewTime": "9999-12-30T00:00:00.000000Z"});
    });
    for forget in [false, true] {
        if forget {
            cluster.webhooks = Some(vec![Default::default()]);
        }
        _ = run(&cluster);
    }
}
