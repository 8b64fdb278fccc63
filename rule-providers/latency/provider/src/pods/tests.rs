use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tautline_core::{index::Object, model};
use tautline_sdk::{Compliance, CostRequest, Reference, Rule, RuleProvider};
use tokio::task::JoinHandle;

use super::*;
use crate::{BandwidthTable, Latency, Table, compliance::tests::pod};

const PATIENCE: Duration = Duration::from_secs(10);

/// A provider whose pods come once they are wanted, and how often it was said that
/// they are not.
struct Seldom {
    feed: ClusterStore,
    provider: Latency,
    not_so_far: Arc<AtomicUsize>,
    wanted: JoinHandle<()>,
}

impl Seldom {
    fn new() -> Self {
        let (feed, pods) = (ClusterStore::default(), Pods::when_wanted());
        let not_so_far = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&not_so_far);
        let wanted = pods.clone().wanted(feed.clone(), move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let provider = Latency::new(feed.clone()).with(pods);
        let mut table = Table::default();
        table.add("a,b,12ms\n").unwrap();
        provider.set_table(table);
        let mut table = BandwidthTable::default();
        table.add("a,b,1G\n").unwrap();
        provider.set_bandwidth_table(table);
        Self {
            feed,
            provider,
            not_so_far,
            wanted: tokio::spawn(wanted),
        }
    }

    /// What a watch does once it is wanted.
    async fn pods_come(self) -> (ClusterStore, Latency) {
        tokio::time::timeout(PATIENCE, self.wanted)
            .await
            .expect("pods are wanted")
            .unwrap();
        let mut listing = self.feed.begin_relist(Kind::Pod);
        for (name, node) in [("x", "a"), ("y", "b")] {
            listing.add(pod(name, node));
        }
        listing.commit();
        (self.feed, self.provider)
    }
}

fn of(rule: &str, request: &str, nodes: &[(&str, Option<&str>)]) -> EvaluationRequest {
    let target = |name: &str| (name.to_owned(), Reference::pod("shop", name));
    let told = |(name, node): &(&str, Option<&str>)| ((*name).to_owned(), node.map(str::to_owned));
    EvaluationRequest {
        targets: ["x", "y"].map(target).into(),
        target_nodes: nodes.iter().map(told).collect(),
        rule: Rule {
            name: rule.into(),
            request: request.into(),
            limit: String::new(),
        },
        deadline: Some(Instant::now() + PATIENCE),
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
async fn who_is_told_where_targets_are_needs_no_pods() {
    let seldom = Seldom::new();
    let judge = async |nodes: &[_]| {
        let said = seldom.provider.evaluate(of("latency", "15ms", nodes)).await;
        said.unwrap().compliance
    };
    let both = [("x", Some("a")), ("y", Some("b"))];
    assert_eq!(judge(&both).await, Compliance::Compliant);
    // Of what is known here nothing counts.
    seldom.feed.apply(pod("y", "b"));
    let one = [("x", Some("a")), ("y", None)];
    assert_eq!(judge(&one).await, Compliance::Pending);
    let listing = seldom.feed.begin_relist(Kind::Policy);
    listing.commit();
    let look = async {
        while seldom.not_so_far.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, look)
        .await
        .expect("no policy, no pods");
    assert!(!seldom.wanted.is_finished());
}

#[tokio::test]
async fn who_is_not_told_waits_for_pods() {
    let seldom = Seldom::new();
    let asked = seldom.provider.clone();
    let said = tokio::spawn(async move { asked.evaluate(of("latency", "15ms", &[])).await });
    let (_, provider) = seldom.pods_come().await;
    assert_eq!(
        said.await.unwrap().unwrap().compliance,
        Compliance::Compliant
    );
    // What the caller says counts before what is known here.
    let moved = of("latency", "15ms", &[("x", Some("b")), ("y", Some("b"))]);
    let said = provider.evaluate(moved).await.unwrap();
    assert_eq!(said.reason, "all on the same node");
}

#[tokio::test]
async fn who_has_no_time_is_told_to_ask_again() {
    let seldom = Seldom::new();
    let mut ask = of("latency", "15ms", &[("x", Some("a"))]);
    ask.deadline = Some(Instant::now());
    let error = seldom.provider.evaluate(ask).await.unwrap_err().to_string();
    assert_eq!(error, "not ready: pods are being listed; ask again");
    let hurried = CostRequest {
        deadline: Some(Instant::now()),
        ..bandwidth()
    };
    let error = seldom.provider.endpoint_cost(hurried).await;
    assert!(matches!(error, Err(ProviderError::NotReady(_))));
    seldom.pods_come().await;
}

#[tokio::test]
async fn who_starts_with_such_a_policy_waits_for_pods() {
    let seldom = Seldom::new();
    let mut listing = seldom.feed.begin_relist(Kind::Policy);
    listing.add(policy("bandwidth"));
    listing.commit();
    let not_so_far = Arc::clone(&seldom.not_so_far);
    seldom.pods_come().await;
    assert_eq!(not_so_far.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_policy_with_bandwidth_counts_what_pods_hold() {
    let seldom = Seldom::new();
    seldom.feed.apply(policy("latency"));
    tokio::task::yield_now().await;
    assert!(!seldom.wanted.is_finished());
    seldom.feed.apply(policy("bandwidth"));
    let (_, provider) = seldom.pods_come().await;
    let answer = provider.endpoint_cost(bandwidth()).await.unwrap();
    assert_eq!(answer.nodes()[0].cost, 0);
    let both = [("x", Some("a")), ("y", Some("b"))];
    let said = provider.evaluate(of("bandwidth", "1M", &both)).await;
    assert_eq!(said.unwrap().compliance, Compliance::Compliant);
}

fn bandwidth() -> CostRequest {
    CostRequest {
        rule: of("bandwidth", "1M", &[]).rule,
        peer_nodes: vec!["a".into()],
        eligible_nodes: vec!["b".into()],
        ..CostRequest::default()
    }
}
