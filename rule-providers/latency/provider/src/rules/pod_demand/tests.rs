use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tautline_core::{index::Object, model};
use tautline_sdk::{Compliance, CostRequest, Reference, Rule, RuleProvider};
use tokio::task::JoinHandle;

use super::*;
use crate::{BandwidthTable, Latency, Table, rules::evaluation::tests::pod};

const PATIENCE: Duration = Duration::from_secs(10);

/// A provider whose pods come once they are requested, and how often it was said that
/// they are not.
struct LazyPods {
    store: ClusterStore,
    provider: Latency,
    not_needed: Arc<AtomicUsize>,
    requested: JoinHandle<()>,
}

impl LazyPods {
    fn new() -> Self {
        let (store, pods) = (ClusterStore::default(), PodDemand::on_request());
        let not_needed = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&not_needed);
        let requested = pods.clone().requested(store.clone(), move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let mut provider = Latency::new(store.clone());
        provider.pods = pods;
        let mut table = Table::default();
        table.add("a,b,12ms\n").unwrap();
        provider.set_table(table);
        let mut table = BandwidthTable::default();
        table.add("a,b,1G\n").unwrap();
        provider.set_bandwidth_table(table);
        Self {
            store,
            provider,
            not_needed,
            requested: tokio::spawn(requested),
        }
    }

    /// What a watch does once it is requested.
    async fn pods_come(self) -> (ClusterStore, Latency) {
        tokio::time::timeout(PATIENCE, self.requested)
            .await
            .expect("pods are requested")
            .unwrap();
        let mut listing = self.store.begin_relist(Kind::Pod);
        for (name, node) in [("x", "a"), ("y", "b")] {
            listing.add(pod(name, node));
        }
        listing.commit();
        (self.store, self.provider)
    }
}

fn of(rule: &str, request: &str, nodes: &[(&str, Option<&str>)]) -> EvaluationRequest {
    let target = |name: &str| (name.to_owned(), Reference::pod("shop", name));
    let entry = |(name, node): &(&str, Option<&str>)| ((*name).to_owned(), node.map(str::to_owned));
    EvaluationRequest {
        targets: ["x", "y"].map(target).into(),
        target_nodes: nodes.iter().map(entry).collect(),
        rule: Rule {
            name: rule.into(),
            request: request.into(),
            limit: String::new(),
        },
        deadline: Some(Instant::now() + PATIENCE),
        ..EvaluationRequest::default()
    }
}

fn policy(rule: &str) -> Object {
    Object::Policy(model::Policy {
        namespace: "shop".into(),
        name: "p".into(),
        rules: vec![model::Rule {
            name: rule.into(),
            request: "1M".into(),
            ..model::Rule::default()
        }],
    })
}

#[tokio::test]
async fn nodes_sent_by_the_caller_need_no_pods() {
    let lazy = LazyPods::new();
    let judge = async |nodes: &[_]| {
        let evaluation = lazy.provider.evaluate(of("latency", "15ms", nodes)).await;
        evaluation.unwrap().compliance
    };
    let both = [("x", Some("a")), ("y", Some("b"))];
    assert_eq!(judge(&both).await, Compliance::Compliant);
    // Of what is known here nothing counts.
    lazy.store.apply(pod("y", "b"));
    let one = [("x", Some("a")), ("y", None)];
    assert_eq!(judge(&one).await, Compliance::Pending);
    let listing = lazy.store.begin_relist(Kind::Policy);
    listing.commit();
    let look = async {
        while lazy.not_needed.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, look)
        .await
        .expect("no policy, no pods");
    assert!(!lazy.requested.is_finished());
}

#[tokio::test]
async fn missing_nodes_wait_for_pods() {
    let lazy = LazyPods::new();
    let waiting = lazy.provider.clone();
    let evaluation =
        tokio::spawn(async move { waiting.evaluate(of("latency", "15ms", &[])).await });
    let (_, provider) = lazy.pods_come().await;
    assert_eq!(
        evaluation.await.unwrap().unwrap().compliance,
        Compliance::Compliant
    );
    // What the caller says counts before what is known here.
    let moved = of("latency", "15ms", &[("x", Some("b")), ("y", Some("b"))]);
    let evaluation = provider.evaluate(moved).await.unwrap();
    assert_eq!(evaluation.reason, "all on the same node");
}

#[tokio::test]
async fn short_deadline_is_not_ready() {
    let lazy = LazyPods::new();
    let mut request = of("latency", "15ms", &[("x", Some("a"))]);
    request.deadline = Some(Instant::now());
    let error = lazy
        .provider
        .evaluate(request)
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(error, "not ready: pods are being listed; ask again");
    let hurried = CostRequest {
        deadline: Some(Instant::now()),
        ..bandwidth()
    };
    let error = lazy.provider.endpoint_cost(hurried).await;
    assert!(matches!(error, Err(ProviderError::NotReady(_))));
    lazy.pods_come().await;
}

#[tokio::test]
async fn bandwidth_policy_at_the_start_requests_pods() {
    let lazy = LazyPods::new();
    let mut listing = lazy.store.begin_relist(Kind::Policy);
    listing.add(policy("bandwidth"));
    listing.commit();
    let not_needed = Arc::clone(&lazy.not_needed);
    lazy.pods_come().await;
    assert_eq!(not_needed.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn new_bandwidth_policy_requests_pods() {
    let lazy = LazyPods::new();
    lazy.store.apply(policy("latency"));
    tokio::task::yield_now().await;
    assert!(!lazy.requested.is_finished());
    lazy.store.apply(policy("bandwidth"));
    let (_, provider) = lazy.pods_come().await;
    let answer = provider.endpoint_cost(bandwidth()).await.unwrap();
    assert_eq!(answer.nodes()[0].cost, 0);
    let both = [("x", Some("a")), ("y", Some("b"))];
    let evaluation = provider.evaluate(of("bandwidth", "1M", &both)).await;
    assert_eq!(evaluation.unwrap().compliance, Compliance::Compliant);
}

fn bandwidth() -> CostRequest {
    CostRequest {
        rule: of("bandwidth", "1M", &[]).rule,
        peer_nodes: vec!["a".into()],
        eligible_nodes: vec!["b".into()],
        ..CostRequest::default()
    }
}
