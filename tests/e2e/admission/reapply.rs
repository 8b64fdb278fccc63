//! The manifests of the webhooks applied again, as an upgrade does.

use std::sync::atomic::{AtomicBool, Ordering};

use kube::api::{Patch, PatchParams};

use super::{mutation_policies::*, *};

const POLICIES: &str = "tautline-mutation-policies";
const AGAIN: usize = 10;

/// The webhooks of the mutation policies' configuration.
pub async fn webhooks(world: &AdmissionCluster) -> Value {
    let all = Api::<MutatingWebhookConfiguration>::all(world.client().clone());
    json!(all.get(POLICIES).await.unwrap().webhooks)
}

/// Applies as `kubectl apply --server-side` does, without force.
async fn apply(world: &AdmissionCluster) {
    let params = PatchParams::apply("tautline-tests");
    for document in rendered(JOBS, &world.url()).unwrap() {
        let name = document["metadata"]["name"].as_str().unwrap();
        let patch = Patch::Apply(&document);
        let applied = match document["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => {
                let all = Api::<MutatingWebhookConfiguration>::all(world.client().clone());
                all.patch(name, &params, &patch).await.map(|_| ())
            }
            _ => {
                let all = Api::<ValidatingWebhookConfiguration>::all(world.client().clone());
                all.patch(name, &params, &patch).await.map(|_| ())
            }
        };
        applied.unwrap();
    }
}

#[tokio::test]
async fn reapplied_webhooks_lose_no_admission() {
    let world = AdmissionCluster::start(JOBS, &[]).await.unwrap();
    in_force(&world).await;
    let before = webhooks(&world).await;
    let hook = &before[0];
    assert_eq!(hook["failurePolicy"], "Fail", "{before}");
    assert_eq!(hook["rules"][0]["resources"][0], "pods", "{before}");
    assert!(hook["clientConfig"]["caBundle"].is_string(), "{before}");
    let written = "tautline_admission_webhook_writes_total";
    let writes = world.server.settled_metric(written).await;

    let done = AtomicBool::new(false);
    let creations = async {
        let mut created = 0;
        while !done.load(Ordering::Relaxed) {
            let response = pod(&world, "default").await;
            let team = &response.body["metadata"]["labels"]["team"];
            assert_eq!(*team, "vision", "{response:?}\n{}", world.state());
            created += 1;
        }
        created
    };
    let applications = async {
        for _ in 0..AGAIN {
            apply(&world).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let (created, ()) = tokio::join!(creations, applications);
    assert!(created >= AGAIN, "{created}");
    // The server wrote nothing: the configuration was never incomplete.
    assert_eq!(webhooks(&world).await, before);
    assert_eq!(world.server.settled_metric(written).await, writes);

    // Another writer removes rules and CA, and the server restores them.
    let mut bare = rendered(&[POLICIES], &world.url()).unwrap().remove(0);
    bare["webhooks"][0]["rules"] = json!([]);
    bare["webhooks"][0]["clientConfig"]["caBundle"] = "".into();
    objects::apply_one(world.client(), bare).await.unwrap();
    let check = async || (webhooks(&world).await == before).then_some(());
    let what = "the webhook is in step again";
    eventually(what, PATIENCE, check, async || world.state()).await;
}
