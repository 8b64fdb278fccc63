//! Rules of offers that name another cluster.

use std::collections::BTreeMap;

use tautline_core::{
    Index,
    index::Object,
    model::{Offer, Policy, ProviderUnavailable, Rule},
    planning::NodeVerdict,
    remote::{Fault, RemotePods, RemoteState, RemoteTarget, Scope},
    selector::Selector,
};
use tautline_provider_client::{ClientConfig, Metrics, PlanningRound, ProviderClient};
use tautline_sdk::testkit;

use crate::{Counting, cluster_index, outcome, patient, plan};

/// A cluster with a provider, and an offer with a target of the cluster east.
fn index(port: u16, field: Option<ProviderUnavailable>, limit: &str) -> Index {
    let mut index = cluster_index(&[("127.0.0.1", port)]);
    let offer = (*index.snapshot().offer("ns", "o").unwrap().offer).clone();
    index.apply(Object::Offer(Offer {
        remote_targets: vec![RemoteTarget {
            name: "db".into(),
            cluster: "east".into(),
            selector: Selector::default(),
        }],
        provider_unavailable: field,
        ..offer
    }));
    index.apply(Object::Policy(Policy {
        namespace: "ns".into(),
        name: "p".into(),
        rules: vec![Rule {
            name: "r".into(),
            limit: limit.to_owned(),
            weight: 1,
            ..Rule::default()
        }],
    }));
    index
}

fn east(state: RemoteState) -> Object {
    Object::RemotePods(RemotePods {
        scope: Scope {
            cluster: "east".into(),
            namespace: "ns".into(),
        },
        state,
        pods: BTreeMap::new(),
    })
}

#[tokio::test]
async fn rule_of_an_unavailable_cluster_rejects_if_it_has_a_limit() {
    use ProviderUnavailable::{Ignore, Reject};
    let provider = Counting::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    // The offer's field, the flag, the rule's limit, and the effect.
    let cases = [
        (None, None, "1", Reject),
        (None, None, "", Ignore),
        (None, Some(Ignore), "1", Ignore),
        (None, Some(Reject), "", Reject),
        (Some(Ignore), Some(Reject), "1", Ignore),
        (Some(Reject), Some(Ignore), "", Reject),
    ];
    for (field, flag, limit, effect) in cases {
        let mut index = index(running.address.port(), field, limit);
        index.apply(east(RemoteState::Unavailable(Fault::Unreachable)));
        let config = ClientConfig {
            provider_unavailable: flag,
            ..ClientConfig::single_tenant()
        };
        let providers = ProviderClient::new(config, Metrics::default()).unwrap();
        let round = plan(&providers, &index.snapshot()).await;
        let (rule, case) = (&round.rules[0], (field, flag, limit));
        assert_eq!(outcome(&rule.outcome), "ClusterUnavailable", "{case:?}");
        assert_eq!(rule.error, Some(Fault::Unreachable.text("east")));
        assert_eq!(round.ignored().count(), usize::from(effect == Ignore));
        assert_eq!(round.counting_providers().count(), 1);
        match round.verdict("n1").unwrap() {
            NodeVerdict::Unusable { reason, freeable } => {
                assert_eq!(effect, Reject, "{case:?}");
                assert_eq!((&**reason, *freeable), ("r/ClusterUnavailable", false));
            }
            NodeVerdict::Usable { .. } => assert_eq!(effect, Ignore, "{case:?}"),
        }
    }
    assert_eq!(provider.calls(), 0);
    running.stop().await;
}

#[tokio::test]
async fn unavailable_cluster_concerns_one_offer_until_it_is_back() {
    let provider = Counting::default();
    let running = testkit::start(provider.clone()).await.unwrap();
    let mut index = index(running.address.port(), None, "1");
    let offer = (*index.snapshot().offer("ns", "o").unwrap().offer).clone();
    index.apply(Object::Offer(Offer {
        name: "other".into(),
        remote_targets: Vec::new(),
        ..offer
    }));
    let providers = patient();
    let outcomes = |round: &PlanningRound| {
        let rules = round.rules.iter();
        let outcomes = rules.map(|r| (r.offer.to_string(), outcome(&r.outcome)));
        outcomes.collect::<BTreeMap<_, _>>()
    };
    let is = |code| BTreeMap::from([("o".to_owned(), code), ("other".to_owned(), "OK")]);
    let round = plan(&providers, &index.snapshot()).await;
    assert_eq!(outcomes(&round), is("ClusterUnavailable"));
    assert_eq!(provider.calls(), 1, "for the other offer");
    assert_eq!(round.rules[0].error, Some(Fault::Off.text("east")));
    for state in [
        RemoteState::Current,
        RemoteState::LastKnown(Fault::Unreachable),
    ] {
        index.apply(east(state));
        let round = plan(&providers, &index.snapshot()).await;
        assert_eq!(outcomes(&round), is("OK"), "{state:?}");
    }
    assert_eq!(provider.calls(), 5);
    running.stop().await;
}
