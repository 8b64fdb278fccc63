use tautline_conformance::{Config, Error, run};
use tautline_scripted::Scripted;
use tautline_sdk::testkit;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::{passes, patient};

#[tokio::test]
async fn run_uses_mutual_tls() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let server = rcgen::generate_simple_self_signed(["p.ns.svc".to_owned()]).unwrap();
    let client = rcgen::generate_simple_self_signed(["tester".to_owned()]).unwrap();
    for (name, text) in [
        ("server.crt", server.cert.pem()),
        ("server.key", server.signing_key.serialize_pem()),
        ("client.crt", client.cert.pem()),
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
    let provider = testkit::start_with(Scripted::default(), config).await;
    let provider = provider.unwrap();
    let with = |ca: String, name: &str| {
        let key = client.signing_key.serialize_pem();
        Config {
            tls: Some(
                ClientTlsConfig::new()
                    .ca_certificate(Certificate::from_pem(ca))
                    .identity(Identity::from_pem(client.cert.pem(), key))
                    .domain_name(name),
            ),
            filter: Some("nodes/".into()),
            ..patient(provider.address, "noise")
        }
    };
    passes(with(server.cert.pem(), "p.ns.svc")).await;
    for config in [
        with(client.cert.pem(), "p.ns.svc"),
        with(server.cert.pem(), "other"),
    ] {
        let error = run(config).await.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
    }
}

#[tokio::test]
async fn errors_name_the_fix() {
    // A port that was free a moment ago.
    let closed = testkit::start(Scripted::default()).await.unwrap();
    let address = closed.address;
    closed.stop().await;
    let no_such_check = Config {
        filter: Some("nodse".into()),
        ..patient(address, "noise")
    };
    for (config, part) in [
        (patient(address, "noise"), "start the provider"),
        (Config::new("localhost", "noise"), "write HOST:PORT"),
        (no_such_check, "the groups are connection, nodes,"),
    ] {
        let error = run(config).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
