//! Mutation policies compared with the API server: it runs every case of the crate as a
//! MutatingAdmissionPolicy, and its result is that of our engine, alone and behind the webhook.

mod generated;
mod offline;
mod webhook;

use std::collections::BTreeMap;

use http::{Method, Request as Http};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, api::PostParams};
use serde_json::{Value, json};
use tautline_mutating_policy::{Outcome, Policies, Request, Settings, StaticCluster, Verdict};
use tautline_tests::{PATIENCE, control_plane::skipped_on_oldest, eventually, objects, root};

use crate::admission::AdmissionCluster;

#[path = "../../admission/mutating-policy/tests/support/case.rs"]
mod case;

use case::{Case, Expect, Group};

/// The kind of PFN's parameters.
pub const PARAMS: &str = include_str!("mutation-params.yaml");

/// How a request ended: the object, or code and text.
type End = Result<Value, (u16, String)>;

#[tokio::test]
async fn engine_and_webhook_match_the_api_server() {
    let world = AdmissionCluster::start(&["tautline-mutation-policies"], &[])
        .await
        .unwrap();
    let client = world.plane.client_as("admin").await.unwrap();
    let mut cases = Case::all(&root().join("admission/mutating-policy/tests/cases"));
    cases.retain(|case| case.ours_only.is_none());
    objects::apply(&client, PARAMS).await.unwrap();

    // The result without any policy.
    let mut before = BTreeMap::new();
    for case in &cases {
        objects::apply_one(&client, case.namespace()).await.unwrap();
        for object in case.params().into_iter().chain(case.old()) {
            objects::apply_one(&client, object).await.unwrap();
        }
        before.insert(&case.name, send(&client, case, &case.object()).await);
    }

    // Ours, completed by the API server as it completes what a webhook answers.
    let mut ours = BTreeMap::new();
    for case in cases.iter().filter(runs) {
        let object = before[&case.name].as_ref().expect("a good object").clone();
        let end = match engine(case, object) {
            Ok(object) => send(&client, case, &object).await,
            Err(refusal) => Err(refusal),
        };
        ours.insert(&case.name, end);
    }

    let mut wrong = Vec::new();
    let theirs = if skipped_on_oldest("the API server's own policies, of Kubernetes 1.36") {
        ours
    } else {
        let mut theirs = api_server(&client, &cases, &mut wrong).await;
        for case in cases.iter().filter(runs) {
            let ours = &ours[&case.name];
            let Some(code) = case.api_server else {
                wrong.extend(differs(case, ours, &theirs[&case.name]));
                continue;
            };
            match theirs.insert(&case.name, ours.clone()) {
                Some(Err((theirs, _))) if theirs == code => {}
                other => wrong.push(format!("{}: not {code}: {other:?}", case.name)),
            }
        }
        theirs
    };
    wrong.extend(webhook::replay(&client, &cases, &theirs).await);
    let count = wrong.len();
    let state = world.state();
    assert!(
        wrong.is_empty(),
        "{count} cases:\n{}\n{state}",
        wrong.join("\n")
    );
}

/// True if the policies are good.
fn runs(case: &&Case) -> bool {
    !matches!(case.expect, Expect::Invalid(_))
}

/// The results of the API server's own policies. Adds to `wrong` those that it accepts and we do
/// not, or the reverse.
async fn api_server<'a>(
    client: &Client,
    cases: &'a [Case],
    wrong: &mut Vec<String>,
) -> BTreeMap<&'a String, End> {
    for case in cases {
        let taken = put(client, &case.manifests(&Group::Theirs)).await;
        let ours = Policies::load(&case.manifests(&Group::Ours)).1.faults;
        match (&case.expect, taken) {
            (Expect::Invalid(_), Ok(())) => wrong.push(format!("{}: it was taken", case.name)),
            (Expect::Invalid(_), Err(_)) if ours.is_empty() => {
                wrong.push(format!("{}: we take it", case.name));
            }
            (Expect::Invalid(_), Err(_)) | (_, Ok(())) => {}
            (_, Err(error)) => wrong.push(format!("{}: {error}", case.name)),
        }
    }
    put(client, &canary(&Group::Theirs)).await.unwrap();
    canary_sings(client, Some("sings")).await;
    let mut theirs = BTreeMap::new();
    for case in cases.iter().filter(runs) {
        theirs.insert(&case.name, send(client, case, &case.object()).await);
    }
    remove_all(client).await;
    canary_sings(client, None).await;
    theirs
}

fn differs(case: &Case, ours: &End, theirs: &End) -> Option<String> {
    let same = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => settled(ours) == settled(theirs),
        (Err((ours, _)), Err((theirs, _))) => ours == theirs,
        _ => false,
    };
    let shown = |end: &End| match end {
        Ok(object) => settled(object).to_string(),
        Err((code, text)) => format!("{code} {text}"),
    };
    let name = &case.name;
    (!same).then(|| {
        format!(
            "{name}:\n  ours   {}\n  theirs {}",
            shown(ours),
            shown(theirs)
        )
    })
}

/// Our engine's result for the object that the API server had before policies.
fn engine(case: &Case, object: Value) -> End {
    let (policies, _) = Policies::load(&case.manifests(&Group::Ours));
    let mut request = Request::create(settled(&object)).unwrap();
    request.dry_run = true;
    request.user_info = json!({"username": "admin", "groups": ["system:masters"]});
    if let Some(old) = case.old() {
        request.operation = "UPDATE".to_owned();
        request.old_object = old.into();
    }
    let mut world = case.params();
    world.push(case.namespace());
    let world = StaticCluster::from_iter(world);
    end(
        policies.mutate(&request, &world, &Settings::default()),
        &request,
    )
}

fn end(outcome: Outcome, request: &Request) -> End {
    match outcome.verdict {
        Verdict::Unchanged => Ok((*request.object).clone()),
        Verdict::Changed { object, .. } => Ok((*object).clone()),
        Verdict::Refused(refusal) => Err((refusal.code, refusal.message)),
    }
}

/// The object without what the API server sets after admission.
fn settled(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object["metadata"].as_object_mut() {
        for field in [
            "uid",
            "creationTimestamp",
            "managedFields",
            "resourceVersion",
            "generation",
        ] {
            meta.remove(field);
        }
    }
    if object.get("status").is_some() {
        object["status"] = json!({});
    }
    object
}

/// Sends an object as the case does, as a dry run.
async fn send(client: &Client, case: &Case, object: &Value) -> End {
    let (base, plural) = match object["kind"].as_str().unwrap_or_default() {
        "Pod" => ("api/v1", "pods"),
        "ConfigMap" => ("api/v1", "configmaps"),
        "Deployment" => ("apis/apps/v1", "deployments"),
        other => panic!("{other}: say its plural here"),
    };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let mut path = format!("/{base}/namespaces/{namespace}/{plural}");
    let mut method = Method::POST;
    if case.old.is_some() {
        path += &format!(
            "/{}",
            object["metadata"]["name"].as_str().unwrap_or_default()
        );
        method = Method::PUT;
    }
    ask(client, method, &format!("{path}?dryRun=All"), object).await
}

async fn ask(client: &Client, method: Method, path: &str, body: &Value) -> End {
    let content = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Http::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", content)
        .body(body.to_string().into_bytes())
        .unwrap();
    match client.request::<Value>(request).await {
        Ok(object) => Ok(object),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        // A connection that the API server drops, as it does when it panics.
        Err(error) => Err((0, format!("{error:?}"))),
    }
}

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";

async fn put(client: &Client, manifests: &[Value]) -> Result<(), String> {
    for manifest in manifests {
        let path = match manifest["kind"].as_str() {
            Some("MutatingAdmissionPolicy") => POLICIES,
            _ => BINDINGS,
        };
        let put = ask(client, Method::POST, path, manifest).await;
        put.map_err(|(code, text)| format!("{code} {text}"))?;
    }
    Ok(())
}

async fn remove_all(client: &Client) {
    for path in [BINDINGS, POLICIES] {
        ask(client, Method::DELETE, path, &json!({})).await.unwrap();
    }
}

/// A policy created after all others: once it is in force, they are too.
fn canary(group: &Group) -> [Value; 2] {
    let (version, kind) = match group {
        Group::Ours => ("tautline.io/v1alpha1", "MutationPolicy"),
        Group::Theirs => ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"),
    };
    let metadata = json!({"name": "zzz-canary"});
    let policy = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["configmaps"], "resourceNames": ["canary"]}]},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration":
            {"expression": "Object{data: {\"canary\": \"sings\"}}"}}]}});
    let binding = json!({"apiVersion": version, "kind": format!("{kind}Binding"),
        "metadata": metadata, "spec": {"policyName": "zzz-canary"}});
    [policy, binding]
}

/// Waits until the canary is in force with this song, or until it no longer is.
async fn canary_sings(client: &Client, song: Option<&str>) {
    let canary: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "canary"}})).unwrap();
    let maps = kube::Api::<ConfigMap>::namespaced(client.clone(), "default");
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let check = async || {
        let made = maps.create(&dry, &canary).await.ok()?;
        let heard = made.data.and_then(|data| data.get("canary").cloned());
        (heard.as_deref() == song).then_some(())
    };
    eventually("policies are taken up", PATIENCE, check, async || "").await;
}
