//! The API server reaches the admission server, and trusts its certificate.

use kube::ResourceExt;
use tautline_core::providers::{PortPreference, addresses};

use super::{
    certificates::{validity, value},
    or_ok,
};
use crate::doctor::{
    certificate::{self, Certificate},
    cluster::{State, Webhook, WebhookConfiguration},
    finding::{Finding, counted},
    rights::generated_secret,
    workload::{Role, Workload},
};

const CA: &str = "ca.crt";
/// Which port counts does not matter, only whether there is an address.
const ANY_PORT: PortPreference = PortPreference {
    name: "webhooks",
    number: 443,
};

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let Some(configurations) = &state.cluster.webhooks else {
        return Vec::new();
    };
    if configurations.is_empty() {
        let text = "none is installed: no object is checked or changed at admission";
        return vec![Finding::ok("WebhooksOff", "webhook configurations", text)];
    }
    let server = state.of(Role::Admission).next();
    let mut findings = Vec::new();
    let trusted = server.and_then(|server| trusted_cas(state, server, &mut findings));
    for configuration in configurations {
        findings.extend(ca_bundle(state, configuration, server, trusted.as_deref()));
        findings.extend(service(state, configuration));
    }
    let passed = Finding::ok(
        "WebhooksServed",
        counted(configurations.len(), "webhook configuration"),
        "a ready server with a certificate of their caBundle",
    );
    or_ok(findings, passed)
}

/// The Secret of the server's certificate.
fn secret_of<'a>(server: &Workload<'a>) -> Option<&'a str> {
    match server.flag("--tls-cert") {
        Some(path) => server.secret_of(path).map(|(secret, _)| secret),
        None => generated_secret(server),
    }
}

/// The CAs of the server's certificates; `None` if the Secret has none or was not read.
fn trusted_cas(
    state: &State<'_>,
    server: &Workload<'_>,
    findings: &mut Vec<Finding>,
) -> Option<Vec<Certificate>> {
    let name = secret_of(server)?;
    let generated = server.flag("--tls-cert").is_none();
    let object = format!("Secret {}/{name}", state.cluster.namespace);
    let logs = format!(
        "kubectl -n {} logs {}",
        state.cluster.namespace,
        server.kubectl()
    );
    let fix = match generated {
        true => format!("the admission server makes it, if it runs and its Role allows it: {logs}"),
        false => format!("write the certificate into the Secret; {logs}"),
    };
    let Some(secret) = state.cluster.secrets.get(name)? else {
        let text = "does not exist: the admission server has no certificate";
        findings.push(Finding::problem("CertificateMissing", object, text, fix));
        return None;
    };
    let cas = match certificate::all(value(secret, CA)?) {
        Ok(cas) => cas,
        Err(error) => {
            let text = format!("{CA} cannot be read: {error}");
            let delete = format!(
                "kubectl -n {} delete secret {name}",
                state.cluster.namespace
            );
            let fix = if generated {
                format!("{delete}; the server makes it again")
            } else {
                fix
            };
            findings.push(Finding::problem("CertificateInvalid", object, text, fix));
            return None;
        }
    };
    let newest = cas.iter().max_by_key(|c| c.not_after)?;
    if !newest.is_valid_at(state.cluster.now) {
        findings.extend(validity(state, &object, newest, &fix));
        return None;
    }
    // The server renews a certificate of the default lifetime 30 days before its end.
    if generated && server.flag("--certificate-lifetime").is_none() {
        findings.extend(validity(state, &object, newest, &fix));
    }
    Some(cas)
}

fn ca_bundle(
    state: &State<'_>,
    configuration: &WebhookConfiguration,
    server: Option<&Workload<'_>>,
    trusted: Option<&[Certificate]>,
) -> Option<Finding> {
    // A URL's certificate may be of a CA that the API server knows.
    let hooks = || configuration.hooks.iter().filter(|h| h.service.is_some());
    let names =
        |wrong: &dyn Fn(&&Webhook) -> bool| hooks().find(|h| wrong(h)).map(|h| h.name.clone());
    let generated = server.is_none_or(|s| s.flag("--tls-cert").is_none());
    let namespace = &state.cluster.namespace;
    let fix = match server {
        Some(server) if generated => format!(
            "the admission server writes it, if it runs and its ClusterRole lets it patch the \
             configuration: kubectl -n {namespace} logs {}",
            server.kubectl()
        ),
        Some(_) => format!(
            "write the CA into clientConfig.caBundle, or the annotation \
             cert-manager.io/inject-ca-from on {}",
            configuration.object()
        ),
        None => state.reapply(),
    };
    if let Some(hook) = names(&|h| h.ca_bundle.is_empty()) {
        let text = format!("{hook} has no caBundle: the API server cannot verify the server");
        return Some(Finding::problem(
            "WebhookWithoutCa",
            configuration.object(),
            text,
            fix,
        ));
    }
    let now = state.cluster.now;
    let trusted = trusted?;
    let fits = |hook: &&Webhook| {
        let bundle = certificate::all(&hook.ca_bundle).unwrap_or_default();
        let mut valid = trusted.iter().filter(|c| c.is_valid_at(now));
        valid.any(|ca| bundle.iter().any(|b| b.der == ca.der))
    };
    let hook = names(&|h| !fits(h))?;
    let secret = server.and_then(secret_of).unwrap_or_default();
    let text = format!(
        "the caBundle of {hook} has no CA of the Secret {namespace}/{secret}: the API server \
         refuses the server's certificate"
    );
    Some(Finding::problem(
        "WebhookCaMismatch",
        configuration.object(),
        text,
        fix,
    ))
}

fn service(state: &State<'_>, configuration: &WebhookConfiguration) -> Option<Finding> {
    let services = state.cluster.services.as_ref()?;
    let slices = state.cluster.slices.is_some();
    let hook_with = |wanted: &(String, String, i32)| {
        let mut hooks = configuration.hooks.iter();
        hooks.any(|h| h.fail && h.service.as_ref() == Some(wanted))
    };
    let targets = configuration
        .hooks
        .iter()
        .filter_map(|h| h.service.as_ref());
    for target in targets {
        let (namespace, name, port) = target;
        let effect = match hook_with(target) {
            true => "the API server refuses its objects (failurePolicy Fail)",
            false => "the webhook is skipped (failurePolicy Ignore)",
        };
        let finding = |check, text: String, fix: String| {
            let object = configuration.object();
            let text = format!("{text}: {effect}");
            Some(match hook_with(target) {
                true => Finding::problem(check, object, text, fix),
                false => Finding::warning(check, object, text, fix),
            })
        };
        let is_target = |s: &&k8s_openapi::api::core::v1::Service| {
            s.namespace().as_deref() == Some(namespace) && s.name_any() == *name
        };
        let Some(service) = services.iter().find(is_target) else {
            let fix = format!("{}; or remove the configuration", state.reapply());
            let text = format!("the Service {namespace}/{name} does not exist");
            return finding("WebhookServiceMissing", text, fix);
        };
        let ports = service.spec.as_ref().and_then(|s| s.ports.as_ref());
        if !ports.into_iter().flatten().any(|p| p.port == *port) {
            let text = format!("the Service {namespace}/{name} has no port {port}");
            let fix =
                format!("clientConfig.service.port, or the ports of Service {namespace}/{name}");
            return finding("WebhookServiceMissing", text, fix);
        }
        let indexed = state.snapshot.service(namespace, name)?;
        let slices_of = state.snapshot.endpoint_slices(namespace, name);
        if slices && addresses(indexed, slices_of, ANY_PORT).is_empty() {
            let text = format!("the Service {namespace}/{name} has no ready endpoint");
            let fix =
                format!("kubectl -n {namespace} get pods; its selector must match ready pods");
            return finding("WebhookNotReady", text, fix);
        }
    }
    None
}
