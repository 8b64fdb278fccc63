//! Random merges: random apply configurations over random Pods and Deployments, each as a
//! MutatingAdmissionPolicy of the real API server and of our engine. The test compares the
//! objects before validation, so that no case is lost to it.

pub mod admitted;
mod merge;
mod source;

use fastrand::Rng;
use futures::{StreamExt, stream};
use tautline_structured_merge::Schemas;
use tautline_tests::control_plane::ControlPlane;

use merge::Merge;

use super::*;

/// Group, kind and where they are created.
const KINDS: [(&str, &str, &str); 2] = [
    ("", "Pod", "/api/v1/namespaces/merging/pods"),
    (
        "apps",
        "Deployment",
        "/apis/apps/v1/namespaces/merging/deployments",
    ),
];
/// Equal results of both.
const MERGES: usize = 2_000;
/// Policies at once: the API server takes up changes once a second.
const BATCH: usize = 250;
/// Requests at once.
const AT_ONCE: usize = 8;
/// These plugins need other objects, or change the object themselves.
const PLUGINS: &str = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,\
                       DefaultTolerationSeconds,Priority,RuntimeClass";

const SYSTEM_FIELDS: [&str; 6] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "managedFields",
    "selfLink",
    "uid",
];

/// How a merge ended.
enum Compared {
    Merged,
    Refused,
    /// The API server refuses the initial object.
    NoObject,
    Differ(String),
}

/// Both accounts may do anything; the policies match only the first one's requests.
struct Sides {
    with: Client,
    without: Client,
}

#[tokio::test]
async fn generated_merges_match_the_api_server() {
    let plane = ControlPlane::start_with(|_| Ok(vec![PLUGINS.to_owned()]));
    let plane = plane.await.unwrap();
    let sides = Sides {
        with: plane.client_as("admin").await.unwrap(),
        without: plane.client_as("kwok").await.unwrap(),
    };
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "merging"}});
    objects::apply_one(&sides.with, namespace).await.unwrap();
    let rule = json!({"apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["pods", "deployments"]});
    let seen = admitted::serve(&sides.with, "merging", rule);
    let _seen = seen.await.unwrap();
    let seed = match std::env::var("TAUTLINE_SEED") {
        Ok(seed) => seed.parse().expect("TAUTLINE_SEED is a number"),
        Err(_) => 0,
    };
    let mut rng = Rng::with_seed(seed);
    let schemas = KINDS.map(|(group, kind, _)| Schemas::bundled().kind(group, "v1", kind));
    let schemas = schemas.map(|schema| schema.expect("a bundled kind"));
    install(&sides, &plane).await;

    let (mut merged, mut refused, mut no_object, mut batch) = (0, 0, 0, 0);
    while merged < MERGES {
        batch += 1;
        let merges: Vec<Merge> = (0..BATCH)
            .map(|i| Merge::make(i, &schemas, &mut rng))
            .collect();
        let taken = put_all(&sides.with, &merges, batch).await;
        let compare = merges.iter().zip(taken).map(async |(merge, taken)| {
            let end = compare(&sides, merge, taken).await;
            (merge, end)
        });
        let ends: Vec<_> = stream::iter(compare)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut differ = Vec::new();
        for (merge, end) in ends {
            match end {
                Compared::Merged => merged += 1,
                Compared::Refused => refused += 1,
                Compared::NoObject => no_object += 1,
                Compared::Differ(how) => differ.push(format!("{}{how}", merge.text())),
            }
        }
        // The shortest is the most readable.
        differ.sort_by_key(String::len);
        if let Some(first) = differ.first() {
            let logs = plane.logs();
            let count = differ.len();
            panic!("seed {seed}: {count} of batch {batch} differ, as\n{first}\n{logs}");
        }
    }
    println!("seed {seed}: {merged} merged and {refused} refused alike, {no_object} no objects");
    // Both outcomes must be in proportion, or the test is too weak.
    assert!(refused > MERGES / 50 && no_object < MERGES / 10);
}

/// A policy for the object of its name, and its binding.
fn manifests(group: &Group, name: &str, expression: &str) -> [Value; 2] {
    let [mut policy, mut binding] = canary(group);
    let rule = json!({"apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["pods", "deployments"], "resourceNames": [name]});
    policy["metadata"]["name"] = name.into();
    policy["spec"]["matchConstraints"]["resourceRules"] = json!([rule]);
    let asker = json!({"name": "asker", "expression": "request.userInfo.username == 'admin'"});
    policy["spec"]["matchConditions"] = json!([asker]);
    policy["spec"]["mutations"] = mutations(expression);
    binding["metadata"]["name"] = name.into();
    binding["spec"]["policyName"] = name.into();
    [policy, binding]
}

fn mutations(expression: &str) -> Value {
    json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}])
}

/// Policies and bindings of all names, and the webhook that shows their results.
async fn install(sides: &Sides, plane: &ControlPlane) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
    let check = async || seen_as(&sides.without, KINDS[0].2, &pod).await.ok();
    eventually("the webhook is called", PATIENCE, check, async || {
        plane.logs()
    })
    .await;
    let all = (0..BATCH).map(|i| manifests(&Group::Theirs, &format!("merge-{i}"), "Object{}"));
    for manifests in all.chain([canary(&Group::Theirs)]) {
        put(&sides.with, &manifests).await.unwrap();
    }
}

/// Gives each policy its expression, and waits until all are active; returns which the API
/// server accepts.
async fn put_all(client: &Client, merges: &[Merge], batch: u32) -> Vec<bool> {
    let set = async |name: &str, expression: &str| {
        let patch = json!({"spec": {"mutations": mutations(expression)}});
        ask(client, Method::PATCH, &format!("{POLICIES}/{name}"), &patch).await
    };
    let all = merges.iter().map(async |merge| {
        let taken = set(&merge.name, &merge.expression).await;
        assert!(
            !matches!(&taken, Err((code, _)) if *code != 422),
            "{taken:?}"
        );
        taken.is_ok()
    });
    let taken = stream::iter(all).buffered(AT_ONCE).collect().await;
    // The API server reads policies one by one while changes come in: when the last one is active,
    // an earlier one may not be. After the next read all are.
    for verse in ["first", "second"] {
        let song = format!("batch {batch}, {verse}");
        let expression = format!("Object{{data: {{\"canary\": {song:?}}}}}");
        set("zzz-canary", &expression).await.unwrap();
        canary_sings(client, Some(&song)).await;
    }
    taken
}

async fn compare(sides: &Sides, merge: &Merge, taken: bool) -> Compared {
    let Ok(before) = seen_as(&sides.without, merge.path, &merge.live).await else {
        return Compared::NoObject;
    };
    let ours = engine(merge, &before);
    if !taken || ours.is_none() {
        return match (taken, ours) {
            (false, None) => Compared::Refused,
            (taken, ours) => Compared::Differ(format!("taken {taken}, ours {ours:?}")),
        };
    }
    let theirs = seen_as(&sides.with, merge.path, &merge.live).await;
    // The API server converts what a webhook answers, and sets defaults.
    let ours = match ours.unwrap_or(Err((0, String::new()))) {
        Ok(object) => seen_as(&sides.without, merge.path, &object).await,
        Err(refusal) => Err(refusal),
    };
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) if normalized(&ours) == normalized(&theirs) => Compared::Merged,
        (Err((ours, _)), Err((theirs, _))) if ours == theirs => Compared::Refused,
        (ours, theirs) => {
            let shown = |end: End| match end {
                Ok(object) => normalized(&object).to_string(),
                Err((code, text)) => format!("{code} {text}"),
            };
            Compared::Differ(format!("ours   {}\ntheirs {}", shown(ours), shown(theirs)))
        }
    }
}

/// The object as it comes to a webhook when `client` creates it.
async fn seen_as(client: &Client, path: &str, object: &Value) -> End {
    let path = format!("{path}?dryRun=All");
    match ask(client, Method::POST, &path, object).await {
        Err((admitted::CODE, text)) => Ok(admitted::object(&text).expect("an object")),
        Err(refusal) => Err(refusal),
        Ok(_) => Err((0, "the webhook was not asked".to_owned())),
    }
}

/// Our engine's result; `None` if it refuses the policy.
fn engine(merge: &Merge, before: &Value) -> Option<End> {
    let (policies, report) =
        Policies::load(&manifests(&Group::Ours, &merge.name, &merge.expression));
    report.faults.is_empty().then(|| {
        let mut request = Request::create(before.clone()).expect("an object");
        request.dry_run = true;
        request.user_info = json!({"username": "admin", "groups": ["system:masters"]});
        let world = StaticCluster::default();
        end(
            policies.mutate(&request, &world, &Settings::default()),
            &request,
        )
    })
}

/// The object without the fields that the API server removes before admission.
pub fn normalized(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.retain(|field, _| !SYSTEM_FIELDS.contains(&&**field));
    }
    nothing(&mut object);
    object
}

/// A required empty list is [] or null, depending on the number of conversions; to Go they are
/// equal.
fn nothing(value: &mut Value) {
    match value {
        Value::Array(elements) if elements.is_empty() => *value = Value::Null,
        Value::Array(elements) => elements.iter_mut().for_each(nothing),
        Value::Object(fields) => fields.values_mut().for_each(nothing),
        _ => {}
    }
}
