//! Tests of the words for each fault of a cluster.

use std::{io, os::unix::process::ExitStatusExt, process};

use anyhow::Context;
use kube::{Config, client::AuthError};
use rustls::{CertificateError, OtherError};

use super::*;

fn api(code: u16, message: &str) -> kube::Error {
    let status = Status::failure(message, "reason").with_code(code);
    kube::Error::Api(Box::new(status))
}

fn address(proxy: Option<&str>) -> ApiServerAddress {
    let mut config = Config::new("https://k8s.example:6443/".parse().unwrap());
    config.proxy_url = proxy.map(|url| url.parse().unwrap());
    ApiServerAddress::of(&config)
}

fn tls(error: rustls::Error) -> String {
    let error = io::Error::new(io::ErrorKind::InvalidData, error);
    address(None).no_answer(&error.into()).to_string()
}

#[test]
fn answers_name_the_fix() {
    for (error, expected) in [
        (api(401, "Unauthorized"), "renew those of the kubeconfig's"),
        (
            api(403, "pods is forbidden"),
            "pods is forbidden; ask for a role",
        ),
        (
            api(404, "404 page not found\n"),
            "of a Kubernetes API server?",
        ),
        (
            api(403, "<html>no</html>"),
            "an HTML page with code 403; is the address that of a Kubernetes",
        ),
        (
            api(503, "<html>busy</html>"),
            "an HTML page with code 503 (503)",
        ),
        (api(500, ""), "code 500 (500)"),
        (
            kube::Error::SerdeError(serde_json::from_str::<()>("<html>").unwrap_err()),
            "a login page of a proxy?",
        ),
    ] {
        let text = explain(&error);
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn contexts_stay_and_causes_are_named_once() {
    let read = Err::<(), _>(api(403, "no")).context("pods of namespace t");
    assert_eq!(
        text(&read.unwrap_err()),
        "pods of namespace t: no; ask for a role with this right"
    );
    let watch = kube_runtime::watcher::Error::InitialListFailed(api(401, "who?"));
    let text_of_watch = text(&watch.into());
    assert!(
        text_of_watch.starts_with("failed to perform initial object list: the cluster does not"),
        "{text_of_watch}"
    );
    assert_eq!(text(&anyhow::anyhow!("other")), "other");
}

#[test]
fn tls_faults_name_the_certificate() {
    let ca = OtherError(std::sync::Arc::new(io::Error::other("CaUsedAsEndEntity")));
    for (error, expected) in [
        (CertificateError::Expired, "has expired; renew it"),
        (CertificateError::NotValidYet, "is not valid yet"),
        (CertificateError::UnknownIssuer, "certificate-authority"),
        (CertificateError::NotValidForName, "tls-server-name"),
        (CertificateError::Other(ca), "is that of a CA"),
        (CertificateError::Revoked, "is not accepted (Revoked)"),
    ] {
        let text = tls(rustls::Error::InvalidCertificate(error));
        let start = "the certificate of https://k8s.example:6443 ";
        assert!(text.starts_with(start) && text.contains(expected), "{text}");
    }
    let text = tls(rustls::Error::InvalidMessage(
        rustls::InvalidMessage::InvalidContentType,
    ));
    assert!(text.contains("does not answer with TLS"), "{text}");
}

#[test]
fn address_of_a_proxy_has_no_password() {
    let address = format!("{:?}", address(Some("http://me:secret@proxy.example:3128")));
    assert!(
        address.contains("http://proxy.example:3128") && !address.contains("secret"),
        "{address}"
    );
}

#[test]
fn plugins_are_named() {
    let plugin = |install_hint: Option<&str>| ExecConfig {
        command: Some("aws-missing".to_owned()),
        install_hint: install_hint.map(str::to_owned),
        ..serde_json::from_str("{}").unwrap()
    };
    let fault = |auth: AuthError, hint: Option<&str>| {
        without_client(kube::Error::Auth(auth), Some(&plugin(hint))).to_string()
    };
    let missing = || AuthError::AuthExecStart(io::ErrorKind::NotFound.into());
    let name = "the kubeconfig's credential plugin \"aws-missing\"";
    let text = fault(missing(), None);
    assert!(
        text.starts_with(&format!("{name} cannot be run: ")) && text.contains("; install it"),
        "{text}"
    );
    let text = fault(missing(), Some("brew install aws"));
    assert!(text.contains("; brew install aws, or"), "{text}");
    let failed = AuthError::AuthExecRun {
        cmd: "TOKEN=secret aws-missing".to_owned(),
        out: Box::new(process::Output {
            status: process::ExitStatus::from_raw(3 << 8),
            stdout: Vec::new(),
            stderr: b"token expired\n".to_vec(),
        }),
    };
    assert_eq!(
        fault(failed, None),
        format!("{name} failed (exit status: 3): token expired; log in again, or run it by hand")
    );
}
