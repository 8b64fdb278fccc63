//! Checks the extender's certificate, and the CAs of certificates that servers generate.

use k8s_openapi::api::core::v1::{Secret, Service};
use kube::{
    ResourceExt,
    core::{Selector, SelectorExt},
};

use super::add;
use crate::{
    age,
    doctor::{
        certificate::{self, Certificate},
        cluster::State,
        finding::{Fault, Finding, first_of, passed, problem},
        workload::{Role, Workload},
    },
};

const CA: &str = "ca.crt";
/// The days before its end in which a certificate must be renewed.
const EXPIRY_DAYS: i64 = 14;
/// The maximum number of names that one finding lists.
const MAX_NAMES: usize = 3;
const RENEW: &str = "make a certificate and write it into the Secret: docs/extender.md, \
                     \"A certificate\"";

pub(super) fn check(state: &State<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    for workload in state.of(Role::Extender) {
        add(out, |out| match workload.generated_secret() {
            Some(secret) => {
                cas(state, workload, out)?;
                let text = "made and renewed by the extender; its CA is valid";
                Some(passed("CertificateValid", state.secret(secret), text))
            }
            None => files(state, workload, out),
        });
    }
    None
}

/// Returns the CAs in the Secret of a server's certificate; `None` if it has no valid one or was
/// not read. The extender renews its certificate but not the CA, of which kube-scheduler has a
/// copy.
pub(super) fn cas(
    state: &State<'_>,
    server: &Workload<'_>,
    out: &mut Vec<Finding>,
) -> Option<Vec<Certificate>> {
    let name = server.tls_secret()?;
    let secret = state.cluster.secrets.get(name)?.as_ref();
    let (object, title) = (state.secret(name), server.role.title());
    let is_extender = server.role == Role::Extender;
    let is_generated = server.generated_secret().is_some();
    let logs = state.logs(server);
    let make = if is_generated {
        format!("the {title} makes it, if it runs and its Role allows it: {logs}")
    } else {
        format!("write the certificate into the Secret; {logs}")
    };
    let delete = format!(
        "kubectl -n {} delete secret {name}",
        state.cluster.namespace
    );
    let again = match (is_extender, is_generated) {
        (true, _) => format!(
            "{delete}; the extender makes it again, with a new ca.crt for kube-scheduler: \
             docs/extender.md, \"A certificate\""
        ),
        (false, true) => format!("{delete}; the server makes it again"),
        (false, false) => make.clone(),
    };
    let Some(secret) = secret else {
        let text = format!("does not exist: the {title} has no certificate");
        out.push(problem("CertificateMissing", object, text, make));
        return None;
    };
    let pem = value(secret, CA).or(is_extender.then_some(&[]))?;
    let all = certificate::all(pem).map_err(|error| {
        let text = format!("{CA} cannot be read: {error}");
        out.push(problem("CertificateInvalid", &object, text, &again));
    });
    let all = all.ok()?;
    let newest = all.iter().max_by_key(|c| c.not_after)?;
    let is_valid = newest.is_valid_at(state.cluster.now);
    // The server renews a certificate of the default lifetime 30 days before its end.
    let is_renewed = is_generated && server.flag("--certificate-lifetime").is_none();
    if is_extender || is_renewed || !is_valid {
        let fix = if is_extender { again } else { make };
        out.extend(validity(state, newest, (&object, &fix)));
    }
    is_valid.then_some(all)
}

/// Checks the certificate of an extender that serves with the files of a Secret.
fn files(state: &State<'_>, workload: &Workload<'_>, out: &mut Vec<Finding>) -> Option<Finding> {
    let file = |flag| workload.secret_of(workload.flag(flag)?);
    // An extender without TLS, such as one in kube-scheduler's pod, has nothing to check.
    let (name, cert) = file("--tls-cert")?;
    let others = ["--tls-key", "--tls-client-ca"].map(|flag| file(flag).map(|(_, key)| key));
    let (object, secret) = (state.secret(name), state.cluster.secrets.get(name)?);
    let chain = match load(secret.as_ref(), &cert, &others) {
        Ok(chain) => chain,
        Err((check, text)) => return Some(problem(check, object, text, RENEW)),
    };
    let first = chain.first()?;
    out.extend(validity(state, first, (&object, RENEW)));
    let names = services(state, workload);
    let covers = |name: &String| {
        let full = format!("{name}.cluster.local");
        first.covers(name) || first.covers(&full)
    };
    if let Some(name) = names.first()
        && !names.iter().any(covers)
    {
        let given = match first_of(&first.dns_names, MAX_NAMES) {
            none if none.is_empty() => "no name".to_owned(),
            names => names,
        };
        let effect = "kube-scheduler refuses it";
        let text = format!("the certificate is for {given}, not for {name}: {effect}");
        let fix = format!("subjectAltName=DNS:{name} in the certificate; {RENEW}");
        out.push(problem("CertificateName", &object, text, fix));
    }
    let text = "valid, and for the name of the Service";
    Some(passed("CertificateValid", object, text))
}

/// Reads the chain `cert` of a Secret, which must have the other files too: the key and the client
/// CA, where the extender names them.
fn load(
    secret: Option<&Secret>,
    cert: &String,
    others: &[Option<String>; 2],
) -> Result<Vec<Certificate>, Fault> {
    let missing = "does not exist: the pods of the extender cannot start";
    let secret = secret.ok_or(("CertificateMissing", missing.to_owned()))?;
    let keys = [cert].into_iter().chain(others.iter().flatten());
    let absent = keys.filter(|key| value(secret, key).is_none());
    let absent: Vec<&str> = absent.map(String::as_str).collect();
    if !absent.is_empty() {
        let absent = absent.join(" and no ");
        let text = format!("has no {absent}: the extender does not start");
        return Err(("CertificateIncomplete", text));
    }
    let invalid = |text| ("CertificateInvalid", text);
    let chain = value(secret, cert).unwrap_or_default();
    let unreadable = |e| invalid(format!("{cert} cannot be read: {e}"));
    let all = certificate::all(chain).map_err(unreadable)?;
    if let [Some(key), _] = others {
        let misfit = |e| invalid(format!("{key} does not fit {cert}: {e}"));
        let pem = value(secret, key).unwrap_or_default();
        certificate::check_key(chain, pem).map_err(misfit)?;
    }
    Ok(all)
}

/// Returns the finding, about an object and with a fix, of a certificate that has ended, ends soon,
/// or has not begun.
fn validity(
    state: &State<'_>,
    certificate: &Certificate,
    (object, fix): (&str, &str),
) -> Option<Finding> {
    let (now, end) = (state.cluster.now, certificate.not_after);
    let (check, text) = if end <= now {
        let ago = age::ago(end, now);
        (
            "CertificateExpired",
            format!("the certificate expired {ago}"),
        )
    } else if certificate.not_before > now {
        let begin = age::second(certificate.not_before);
        let text = format!("the certificate is not valid before {begin}");
        ("CertificateNotYetValid", text)
    } else {
        let left = match end.duration_since(now).as_hours() {
            hours @ ..48 => format!("{hours} h"),
            hours if hours < 24 * EXPIRY_DAYS => format!("{} days", hours / 24),
            _ => return None,
        };
        let text = format!("the certificate expires in {left} ({})", age::second(end));
        ("CertificateExpiring", text)
    };
    let is_valid = certificate.is_valid_at(now);
    Some(problem(check, object, text, fix).warning_if(is_valid))
}

/// Returns the DNS names of the Services that select the workload's pods.
fn services(state: &State<'_>, workload: &Workload<'_>) -> Vec<String> {
    let own = &state.cluster.namespace;
    let template = workload.template.metadata.iter();
    let labels = template.flat_map(|m| m.labels.clone()).flatten().collect();
    let services = state.cluster.services.iter().flatten().filter(|service| {
        let selector = service.spec.iter().flat_map(|s| s.selector.clone());
        let selects = |selector| Selector::from_iter(selector).matches(&labels);
        service.namespace().as_ref() == Some(own) && selector.filter(|s| !s.is_empty()).any(selects)
    });
    let name = |s: &Service| format!("{}.{own}.svc", s.name_any());
    services.map(name).collect()
}

fn value<'s>(secret: &'s Secret, key: &str) -> Option<&'s [u8]> {
    let data = secret.data.as_ref()?.get(key)?;
    Some(&*data.0).filter(|d| !d.is_empty())
}
