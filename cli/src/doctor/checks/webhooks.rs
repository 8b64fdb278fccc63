//! Checks that the API server reaches the admission server, and trusts its certificate.

use k8s_openapi::api::admissionregistration::v1::{ServiceReference, ValidatingWebhook};
use tautline_core::providers::{PortPreference, addresses};

use super::certificates::cas;
use crate::doctor::{
    certificate::{self, Certificate},
    cluster::{State, WebhookConfiguration},
    finding::{Finding, counted, passed, problem},
    workload::{Role, Workload},
};

/// A port for lookups in which only the address matters.
const ANY_PORT: PortPreference = PortPreference {
    name: "webhooks",
    number: 443,
};

pub(super) fn check(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let configurations = state.cluster.webhooks.as_ref()?;
    if configurations.is_empty() {
        let text = "none is installed: no object is checked or changed at admission";
        return Some(passed("WebhooksOff", "webhook configurations", text));
    }
    let server = state.of(Role::Admission).next();
    let trusted = server.and_then(|server| cas(state, server, out));
    for configuration in configurations {
        out.extend(ca_bundle(state, configuration, server, trusted.as_deref()));
        out.extend(service(state, configuration));
    }
    let object = counted(configurations.len(), "webhook configuration");
    let text = "a ready server with a certificate of their caBundle";
    Some(passed("WebhooksServed", object, text))
}

fn ca_bundle(
    state: &State<'_>,
    configuration: &WebhookConfiguration,
    server: Option<&Workload<'_>>,
    trusted: Option<&[Certificate]>,
) -> Option<Finding> {
    let object = configuration.object();
    let fix = match server {
        Some(server) if server.generated_secret().is_some() => format!(
            "the admission server writes it, if it runs and its ClusterRole lets it patch the \
             configuration: {}",
            state.logs(server)
        ),
        Some(_) => format!(
            "write the CA into clientConfig.caBundle, or the annotation \
             cert-manager.io/inject-ca-from on {object}"
        ),
        None => state.reapply(),
    };
    // A URL's certificate may be of a CA that the API server knows.
    let bundle = |hook: &ValidatingWebhook| {
        let bundle = hook.client_config.ca_bundle.clone();
        bundle.map_or_else(Vec::new, |bundle| bundle.0)
    };
    let hooks = || configuration.hooks().map(|(hook, _)| hook);
    if let Some(hook) = hooks().find(|hook| bundle(hook).is_empty()) {
        let name = &hook.name;
        let text = format!("{name} has no caBundle: the API server cannot verify the server");
        return Some(problem("WebhookWithoutCa", object, text, fix));
    }
    let valid = trusted?.iter().filter(|c| c.is_valid_at(state.cluster.now));
    let is_trusted = |hook: &&ValidatingWebhook| {
        let bundle = certificate::all(&bundle(hook)).unwrap_or_default();
        let mut valid = valid.clone();
        valid.any(|ca| bundle.iter().any(|b| b.der == ca.der))
    };
    let hook = hooks().find(|h| !is_trusted(h))?;
    let secret = state.secret(server.and_then(Workload::tls_secret).unwrap_or_default());
    let text = format!(
        "the caBundle of {} has no CA of the {secret}: the API server refuses the server's \
         certificate",
        hook.name
    );
    Some(problem("WebhookCaMismatch", object, text, fix))
}

/// Returns the finding about the first webhook whose Service cannot be called.
fn service(state: &State<'_>, configuration: &WebhookConfiguration) -> Option<Finding> {
    state.cluster.services.as_ref()?;
    let is_read = state.cluster.slices.is_some();
    for (_, target) in configuration.hooks() {
        let (namespace, name, port) = (&target.namespace, &target.name, port_of(target));
        let slices = state.snapshot.endpoint_slices(namespace, name);
        let (check, fault, fix) = match state.snapshot.service(namespace, name) {
            None => {
                let fix = format!("{}; or remove the configuration", state.reapply());
                ("WebhookServiceMissing", "does not exist".to_owned(), fix)
            }
            Some(service) if !service.ports.iter().any(|p| i32::from(p.port) == port) => {
                let ports = format!("the ports of Service {namespace}/{name}");
                let fix = format!("clientConfig.service.port, or {ports}");
                ("WebhookServiceMissing", format!("has no port {port}"), fix)
            }
            Some(service) if is_read && addresses(service, slices, ANY_PORT).is_empty() => {
                let fix =
                    format!("kubectl -n {namespace} get pods; its selector must match ready pods");
                ("WebhookNotReady", "has no ready endpoint".to_owned(), fix)
            }
            Some(_) => continue,
        };
        let is_fatal = configuration.hooks().any(|(hook, service)| {
            let called = (&service.namespace, &service.name, port_of(service));
            called == (namespace, name, port) && is_fatal(hook)
        });
        let effect = if is_fatal {
            "the API server refuses its objects (failurePolicy Fail)"
        } else {
            "the webhook is skipped (failurePolicy Ignore)"
        };
        let text = format!("the Service {namespace}/{name} {fault}: {effect}");
        let finding = problem(check, configuration.object(), text, fix);
        return Some(finding.warning_if(!is_fatal));
    }
    None
}

fn port_of(service: &ServiceReference) -> i32 {
    service.port.unwrap_or(443)
}

/// Returns whether the API server refuses objects without the webhook's answer. Its default policy
/// is Fail.
fn is_fatal(hook: &ValidatingWebhook) -> bool {
    let has_rules = hook.rules.iter().flatten().next().is_some();
    has_rules && hook.failure_policy.as_deref().unwrap_or("Fail") == "Fail"
}
