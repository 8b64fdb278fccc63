//! Calls over TLS.

use std::time::Duration;

use tautline_core::{Index, index::Object, model::Service};
use tautline_provider_client::{ClientConfig, Metrics, ProviderClient};
use tautline_sdk::testkit;

use crate::{Counting, cluster, code, plan};

#[tokio::test]
async fn calls_use_mutual_tls() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let server = rcgen::generate_simple_self_signed(["p.ns.svc".to_owned()]).unwrap();
    let client = rcgen::generate_simple_self_signed(["extender".to_owned()]).unwrap();
    for (name, text) in [
        ("server.crt", server.cert.pem()),
        ("server.key", server.signing_key.serialize_pem()),
        ("client.crt", client.cert.pem()),
        ("client.key", client.signing_key.serialize_pem()),
    ] {
        std::fs::write(at(name), text).unwrap();
    }
    let tls = tautline_sdk::TlsFiles {
        cert: at("server.crt"),
        key: at("server.key"),
        client_ca: Some(at("client.crt")),
        alpn: vec![],
    };
    let config = tautline_sdk::Config {
        tls: Some(tls),
        ..testkit::loopback()
    };
    let running = testkit::start_with(Counting::default(), config)
        .await
        .unwrap();
    let mut index = Index::default();
    index.apply(Object::Service(Service {
        namespace: "ns".into(),
        name: "p".into(),
        rules: vec!["r".into()],
        tls_required: true,
        has_selector: true,
        ..Service::default()
    }));
    let plain = cluster(&[("127.0.0.1", running.address.port())]);
    // The same cluster, but the provider requires TLS.
    for entry in plain.offers_in("ns") {
        index.apply(Object::Offer((*entry.offer).clone()));
    }
    index.apply(Object::Policy((**plain.policy("ns", "p").unwrap()).clone()));
    for slice in plain.endpoint_slices("ns", "p") {
        index.apply(Object::EndpointSlice((**slice).clone()));
    }
    let snapshot = index.snapshot();
    let with = |identity: Option<(&str, &str)>, ca: &str| {
        let tls = tautline_runtime::tls::ClientFiles {
            ca: Some(at(ca)),
            identity: identity.map(|(c, k)| (at(c), at(k))),
        };
        let config = ClientConfig {
            tls,
            deadline: Duration::from_secs(5),
            ..ClientConfig::single_tenant()
        };
        ProviderClient::new(config, Metrics::default()).unwrap()
    };
    let known = with(Some(("client.crt", "client.key")), "server.crt");
    let round = plan(&known, &snapshot).await;
    assert_eq!(code(&round), "OK", "{:?}", round.rules[0].error);
    let nameless = with(None, "server.crt");
    assert_eq!(code(&plan(&nameless, &snapshot).await), "ProviderFailed");
    let distrustful = with(Some(("client.crt", "client.key")), "client.crt");
    let round = plan(&distrustful, &snapshot).await;
    assert_eq!(code(&round), "ProviderFailed");
    let text = round.rules[0].error.as_deref().unwrap();
    assert!(text.contains(": TLS: "), "{text}");
    assert_eq!(
        code(&plan(&known, &plain).await),
        "ProviderFailed",
        "plain text to a TLS port"
    );
}
