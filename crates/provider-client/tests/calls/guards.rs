//! A tenant's Services affect no pods of other namespaces, and delay kube-scheduler only a little.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tautline_core::{
    Index, Snapshot,
    index::Object,
    model::{Policy, Rule, Service, ServicePort},
    providers::ExternalNames,
    trust::TrustedNamespaces,
};
use tautline_provider_client::{ClientConfig, Metrics, PlanningQuestion, ProviderClient};
use tautline_sdk::{
    Allocator, AllocatorError, CostAnswer, CostRequest, Evaluation, EvaluationRequest,
    ProviderError, ReservationRef, ReservationRequest, Reserved, RuleProvider, Server, testkit,
};

use crate::{cluster, code, outcome, question, reserve};

/// Records the annotations that it receives, is slow, and returns annotations to write.
#[derive(Clone, Default)]
struct Nosy {
    received: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
    released: Arc<Mutex<Vec<String>>>,
    writes: BTreeMap<String, String>,
    delay: Duration,
}

impl RuleProvider for Nosy {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        self.received
            .lock()
            .unwrap()
            .push(request.workload.unwrap_or_default().annotations);
        tokio::time::sleep(self.delay).await;
        let mut answer = CostAnswer::default();
        for node in request.eligible_nodes {
            answer.usable(node, 1, "");
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

impl Allocator for Nosy {
    async fn reserve(&self, request: ReservationRequest) -> Result<Reserved, AllocatorError> {
        self.received
            .lock()
            .unwrap()
            .push(request.details.unwrap_or_default().annotations);
        Ok(Reserved {
            id: "r-1".into(),
            annotations: self.writes.clone(),
            expires: None,
        })
    }

    async fn confirm(&self, _: ReservationRef) -> Result<(), AllocatorError> {
        Ok(())
    }

    async fn release(&self, reserved: ReservationRef) -> Result<(), AllocatorError> {
        self.released.lock().unwrap().push(reserved.id);
        Ok(())
    }
}

/// Serves it as provider and allocator for as long as the test runs.
async fn start(provider: &Nosy) -> u16 {
    let server = Server::bind(testkit::loopback()).await.unwrap();
    let port = server.address().port();
    let mut tasks = tautline_runtime::tasks::Tasks::default();
    let both = Arc::new(provider.clone());
    let launched = server.spawn_with_allocator(Arc::clone(&both), both, &mut tasks);
    launched.unwrap();
    tokio::spawn(tasks.run(std::future::pending()));
    port
}

/// One offer in `ns`, and a Service for its rule `r` in another namespace.
fn with_service(namespace: &str, port: u16, change: impl Fn(&mut Service)) -> Snapshot {
    let plain = cluster(&[]);
    let mut index = Index::default();
    for entry in plain.offers_in("ns") {
        index.apply(Object::Offer((*entry.offer).clone()));
    }
    index.apply(Object::Policy((**plain.policy("ns", "p").unwrap()).clone()));
    let mut service = Service {
        namespace: namespace.into(),
        name: "p".into(),
        rules: vec!["r".into()],
        external_name: Some("127.0.0.1".into()),
        ports: vec![ServicePort {
            name: "ruleprovider".into(),
            port,
        }],
        ..Service::default()
    };
    change(&mut service);
    index.apply(Object::Service(service));
    index.snapshot()
}

fn providers(trusted: &[&str]) -> ProviderClient {
    let config = ClientConfig {
        trusted: TrustedNamespaces::new(trusted),
        external_names: ExternalNames::Any,
        deadline: Duration::from_millis(300),
        scheduler_share_percent: Some(5),
        ..ClientConfig::default()
    };
    ProviderClient::new(config, Metrics::default()).unwrap()
}

fn annotated() -> PlanningQuestion {
    let pairs = [("secret/token", "s3cret"), ("tautline.io/model", "L4")];
    let mut question = question(&["n1", "n2"]);
    question.subject.uid = "u-1".into();
    PlanningQuestion {
        annotations: pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        scheduler_waits: true,
        ..question
    }
}

#[tokio::test]
async fn untrusted_provider_serves_only_its_namespace() {
    let provider = Nosy::default();
    let port = start(&provider).await;
    let snapshot = with_service("tenant", port, |s| s.priority = i64::MAX);
    let round = providers(&["infra"]).plan_pod(&snapshot, annotated()).await;
    assert_eq!(code(&round), "NoProvider");
    let text = round.rules[0].error.as_deref().unwrap();
    for part in ["--provider-namespaces", "constraint-r: enabled"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(provider.received.lock().unwrap().is_empty());
    // It serves its own namespace, and a trusted one serves all.
    for (namespace, trusted) in [("ns", "infra"), ("tenant", "tenant"), ("tenant", "*")] {
        let snapshot = with_service(namespace, port, |_| ());
        let round = providers(&[trusted]).plan_pod(&snapshot, annotated()).await;
        assert_eq!(code(&round), "OK", "{namespace}, {trusted}");
    }
}

#[tokio::test]
async fn shared_annotations_limit_other_namespaces() {
    let provider = Nosy::default();
    let port = start(&provider).await;
    let received = async |namespace: &str| {
        let snapshot = with_service(namespace, port, |s| s.allocator = true);
        let providers = providers(&["ns", "infra"]);
        providers.plan_pod(&snapshot, annotated()).await;
        let reserved = reserve(&providers, &snapshot, &annotated()).await;
        reserved.unwrap();
        std::mem::take(&mut *provider.received.lock().unwrap())
    };
    for annotations in received("infra").await {
        let keys: Vec<&String> = annotations.keys().collect();
        assert_eq!(keys, ["tautline.io/model"]);
    }
    let own = received("ns").await;
    assert_eq!(own.len(), 2);
    assert!(own.iter().all(|a| a.contains_key("secret/token")));
}

#[tokio::test]
async fn untrusted_allocator_is_not_called() {
    let provider = Nosy::default();
    let port = start(&provider).await;
    let snapshot = with_service("ns", port, |s| s.allocator = true);
    let providers = providers(&["infra"]);
    let round = providers.plan_pod(&snapshot, annotated()).await;
    assert_eq!(code(&round), "ProviderNotAllowed");
    let reserved = reserve(&providers, &snapshot, &annotated()).await;
    assert!(reserved.unwrap().is_empty());
    assert!(provider.received.lock().unwrap().is_empty());
}

#[tokio::test]
async fn reserve_rejects_annotations_that_are_not_allowed() {
    for (key, allowed) in [
        ("tautline.io/gpu-devices", true),
        ("tautline.io/other", false),
        ("kubernetes.io/psp", false),
    ] {
        let provider = Nosy {
            writes: [(key.to_owned(), "0:250".to_owned())].into(),
            ..Nosy::default()
        };
        let port = start(&provider).await;
        let snapshot = with_service("infra", port, |s| s.allocator = true);
        let reserved = reserve(&providers(&["infra"]), &snapshot, &annotated()).await;
        assert_eq!(reserved.is_ok(), allowed, "{key}");
        // Rejected reservations are released.
        let released = provider.released.lock().unwrap().len();
        assert_eq!(released, usize::from(!allowed), "{key}");
        if let Err(error) = reserved {
            assert!(error.to_string().contains(key), "{error}");
        }
    }
}

#[tokio::test]
async fn external_names_are_called_only_if_allowed() {
    let provider = Nosy::default();
    let port = start(&provider).await;
    for (host, external, expected) in [
        ("127.0.0.1", ExternalNames::Any, "OK"),
        ("127.0.0.1", ExternalNames::Off, "ProviderNotAllowed"),
        ("127.0.0.1", ExternalNames::Remote, "ProviderNotAllowed"),
        (
            "169.254.169.254",
            ExternalNames::Remote,
            "ProviderNotAllowed",
        ),
        // A local name is rejected when it is resolved.
        ("localhost", ExternalNames::Remote, "ProviderFailed"),
    ] {
        let config = ClientConfig {
            external_names: external,
            ..ClientConfig::single_tenant()
        };
        let providers = ProviderClient::new(config, Metrics::default()).unwrap();
        let snapshot = with_service("ns", port, |s| s.external_name = Some(host.into()));
        let round = providers.plan_pod(&snapshot, annotated()).await;
        assert_eq!(code(&round), expected, "{host}: {:?}", round.rules[0].error);
    }
    assert_eq!(provider.received.lock().unwrap().len(), 1);
}

/// Tenants must not learn whether a port is closed, open, or speaks another protocol.
#[tokio::test]
async fn hide_details_of_untrusted_external_names() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_port = closed.local_addr().unwrap().port();
    drop(closed);
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut received = Vec::new();
    for port in [closed_port, silent.local_addr().unwrap().port()] {
        let snapshot = with_service("ns", port, |_| ());
        let round = providers(&["infra"]).plan_pod(&snapshot, annotated()).await;
        received.push((code(&round), round.rules[0].error.clone()));
    }
    assert_eq!(received[0], received[1]);
    assert_eq!(received[0].0, "ProviderFailed");
}

#[tokio::test]
async fn budget_limits_the_wait_for_untrusted_providers() {
    let slow = Nosy {
        delay: Duration::from_secs(60),
        ..Nosy::default()
    };
    let port = start(&slow).await;
    let snapshot = with_service("ns", port, |_| ());
    let tenants = providers(&["infra"]);
    // Details of an address that the tenant chose are hidden.
    let waited = tenants.plan_pod(&snapshot, annotated()).await;
    assert_eq!(code(&waited), "ProviderFailed");
    assert!(
        waited.took >= Duration::from_millis(100),
        "{:?}",
        waited.took
    );
    let mut waited = 0;
    for _ in 0..20 {
        let round = tenants.plan_pod(&snapshot, annotated()).await;
        waited += usize::from(code(&round) != "ProviderOverBudget");
    }
    assert!(waited < 5, "{waited} of 20 rounds have waited");
    // Not charged: a round without kube-scheduler, and a trusted provider.
    let quiet = PlanningQuestion {
        scheduler_waits: false,
        ..annotated()
    };
    assert_eq!(
        code(&tenants.plan_pod(&snapshot, quiet).await),
        "ProviderFailed"
    );
    let ours = providers(&["ns"]);
    for _ in 0..2 {
        assert_eq!(
            code(&ours.plan_pod(&snapshot, annotated()).await),
            "ProviderTimeout"
        );
    }
}

/// Each rule costs a question and memory for every node.
#[tokio::test]
async fn round_limits_the_number_of_rules() {
    let plain = cluster(&[]);
    let mut index = Index::default();
    for entry in plain.offers_in("ns") {
        index.apply(Object::Offer((*entry.offer).clone()));
    }
    let rule = |i| Rule {
        name: format!("r{i:03}").as_str().into(),
        weight: 1,
        ..Rule::default()
    };
    index.apply(Object::Policy(Policy {
        namespace: "ns".into(),
        name: "p".into(),
        rules: (0..300).map(rule).collect(),
    }));
    let round = providers(&["*"])
        .plan_pod(&index.snapshot(), annotated())
        .await;
    let codes: Vec<&str> = round.rules.iter().map(|r| outcome(&r.outcome)).collect();
    assert_eq!(codes.len(), 300);
    assert!(codes[..256].iter().all(|c| *c == "NoProvider"), "{codes:?}");
    assert!(
        codes[256..].iter().all(|c| *c == "TooManyRules"),
        "{codes:?}"
    );
}
