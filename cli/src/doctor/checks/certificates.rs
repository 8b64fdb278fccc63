//! The extender's certificate.

use k8s_openapi::{api::core::v1::Secret, jiff::SignedDuration};
use kube::ResourceExt;

use super::{EXPIRY_DAYS, or_ok};
use crate::{
    age,
    doctor::{
        certificate::{self, Certificate},
        cluster::State,
        finding::{Finding, first_of},
        rights::generated_secret,
        workload::{Role, Workload},
    },
};

const RENEW: &str = "make a certificate and write it into the Secret: docs/extender.md, \
                     \"A certificate\"";

pub(super) fn check(state: &State<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for workload in state.of(Role::Extender) {
        if let Some(secret) = generated_secret(workload) {
            findings.extend(generated(state, workload, secret));
            continue;
        }
        // Without TLS, as beside a kube-scheduler in the same pod, there is nothing to check.
        let files = ["--tls-cert", "--tls-key", "--tls-client-ca"].map(|flag| {
            workload
                .flag(flag)
                .and_then(|path| workload.secret_of(path))
        });
        let [Some((secret, cert)), key, client_ca] = files else {
            continue;
        };
        let Some(read) = state.cluster.secrets.get(secret) else {
            continue;
        };
        let object = format!("Secret {}/{secret}", state.cluster.namespace);
        let Some(read) = read else {
            let text = "does not exist: the pods of the extender cannot start";
            findings.push(Finding::problem("CertificateMissing", object, text, RENEW));
            continue;
        };
        let keys = [
            Some(&cert),
            key.as_ref().map(|k| &k.1),
            client_ca.as_ref().map(|k| &k.1),
        ];
        let absent: Vec<&str> = keys
            .into_iter()
            .flatten()
            .filter(|key| value(read, key).is_none())
            .map(String::as_str)
            .collect();
        if !absent.is_empty() {
            let text = format!(
                "has no {}: the extender does not start",
                absent.join(" and no ")
            );
            findings.push(Finding::problem(
                "CertificateIncomplete",
                object,
                text,
                RENEW,
            ));
            continue;
        }
        let key = key.map(|(_, key)| key).unwrap_or_default();
        let found = examine(state, workload, &object, read, (&cert, &key));
        findings.extend(or_ok(
            found,
            Finding::ok(
                "CertificateValid",
                object,
                "valid, and for the name of the Service",
            ),
        ));
    }
    findings
}

/// A certificate that the extender generates: it renews it, but not the CA, which kube-scheduler has
/// a copy of.
fn generated(state: &State<'_>, workload: &Workload<'_>, secret: &str) -> Vec<Finding> {
    let namespace = &state.cluster.namespace;
    let object = format!("Secret {namespace}/{secret}");
    let Some(read) = state.cluster.secrets.get(secret) else {
        return Vec::new();
    };
    let Some(read) = read else {
        let text = "does not exist: the extender has no certificate";
        let fix = format!(
            "the extender makes it, if it runs and its Role allows it: kubectl -n {namespace} \
             logs {}",
            workload.kubectl()
        );
        return vec![Finding::problem("CertificateMissing", object, text, fix)];
    };
    let renew = format!(
        "kubectl -n {namespace} delete secret {secret}; the extender makes it again, with a new \
         ca.crt for kube-scheduler: docs/extender.md, \"A certificate\""
    );
    let cas = match certificate::all(value(read, "ca.crt").unwrap_or_default()) {
        Ok(cas) => cas,
        Err(error) => {
            let text = format!("ca.crt cannot be read: {error}");
            return vec![Finding::problem("CertificateInvalid", object, text, renew)];
        }
    };
    let newest = cas.iter().max_by_key(|c| c.not_after);
    let found = newest.and_then(|ca| validity(state, &object, ca, &renew));
    let passed = "made and renewed by the extender; its CA is valid";
    or_ok(
        found.into_iter().collect(),
        Finding::ok("CertificateValid", object, passed),
    )
}

fn examine(
    state: &State<'_>,
    workload: &Workload<'_>,
    object: &str,
    secret: &Secret,
    (cert, key): (&str, &str),
) -> Vec<Finding> {
    let chain = value(secret, cert).unwrap_or_default();
    let invalid = |text| vec![Finding::problem("CertificateInvalid", object, text, RENEW)];
    let all = match certificate::all(chain) {
        Ok(all) => all,
        Err(error) => return invalid(format!("{cert} cannot be read: {error}")),
    };
    let Some(first) = all.first() else {
        return Vec::new();
    };
    if let Some(fault) = value(secret, key).and_then(|key| certificate::key_fault(chain, key)) {
        return invalid(format!("{key} does not fit {cert}: {fault}"));
    }
    let mut findings = Vec::new();
    findings.extend(validity(state, object, first, RENEW));
    let namespace = &state.cluster.namespace;
    let names = services(state, workload);
    let names: Vec<String> = names.map(|s| format!("{s}.{namespace}.svc")).collect();
    let covers = |name: &String| {
        let full = format!("{name}.cluster.local");
        first.covers(name) || first.covers(&full)
    };
    if let Some(name) = names.first()
        && !names.iter().any(covers)
    {
        let text = format!(
            "the certificate is for {}, not for {name}: kube-scheduler refuses it",
            match first_of(&first.dns_names, 3) {
                none if none.is_empty() => "no name".to_owned(),
                names => names,
            }
        );
        let fix = format!("subjectAltName=DNS:{name} in the certificate; {RENEW}");
        findings.push(Finding::problem("CertificateName", object, text, fix));
    }
    findings
}

/// The finding about a certificate that has ended, ends soon, or has not begun.
pub(super) fn validity(
    state: &State<'_>,
    object: &str,
    certificate: &Certificate,
    fix: &str,
) -> Option<Finding> {
    let now = state.cluster.now;
    let Certificate {
        not_before,
        not_after,
        ..
    } = certificate;
    if *not_after <= now {
        let text = format!("the certificate expired {}", age::ago(*not_after, now));
        return Some(Finding::problem("CertificateExpired", object, text, fix));
    }
    if *not_before > now {
        let text = format!(
            "the certificate is not valid before {}",
            age::second(*not_before)
        );
        return Some(Finding::problem(
            "CertificateNotYetValid",
            object,
            text,
            fix,
        ));
    }
    let left = not_after.duration_since(now);
    (left < SignedDuration::from_hours(24 * EXPIRY_DAYS)).then(|| {
        let hours = left.as_hours();
        let left = if hours < 48 {
            format!("{hours} h")
        } else {
            format!("{} days", hours / 24)
        };
        let text = format!(
            "the certificate expires in {left} ({})",
            age::second(*not_after)
        );
        Finding::warning("CertificateExpiring", object, text, fix)
    })
}

/// The Services that select the workload's pods.
fn services<'s>(
    state: &'s State<'_>,
    workload: &Workload<'_>,
) -> impl Iterator<Item = String> + 's {
    let labels = workload
        .template
        .metadata
        .as_ref()
        .and_then(|m| m.labels.clone());
    let labels = labels.unwrap_or_default();
    let own = &state.cluster.namespace;
    let services = state.cluster.services.iter().flatten();
    services
        .filter(move |s| {
            let selector = s.spec.as_ref().and_then(|s| s.selector.as_ref());
            let selects = selector.is_some_and(|selector| {
                !selector.is_empty() && selector.iter().all(|(k, v)| labels.get(k) == Some(v))
            });
            s.namespace().as_deref() == Some(own) && selects
        })
        .map(ResourceExt::name_any)
}

pub(super) fn value<'s>(secret: &'s Secret, key: &str) -> Option<&'s [u8]> {
    let data = secret.data.as_ref()?.get(key)?;
    Some(&*data.0).filter(|d| !d.is_empty())
}
