//! The reasons why a request to an API server has no answer: no connection, a proxy or TLS.

use std::{error::Error, fmt, io, sync::Arc};

use kube::Config;
use rustls::CertificateError;
use tower::BoxError;

const IS_IT_UP: &str = "is the cluster up, and is it the one that --kubeconfig and --context name?";

/// The address of an API server.
#[derive(Clone, Debug)]
pub(crate) struct ApiServerAddress {
    pub(crate) url: Arc<str>,
    /// The proxy, without a user and password.
    proxy: Option<Arc<str>>,
}

impl ApiServerAddress {
    pub(crate) fn of(config: &Config) -> Self {
        let proxy = config.proxy_url.as_ref().map(|uri| {
            let scheme = uri.scheme_str().unwrap_or("http");
            let port = uri
                .port()
                .map_or_else(String::new, |port| format!(":{port}"));
            format!("{scheme}://{}{port}", uri.host().unwrap_or_default()).into()
        });
        Self {
            url: config.cluster_url.to_string().trim_end_matches('/').into(),
            proxy,
        }
    }

    /// Makes the error of a request without an answer.
    pub(crate) fn no_answer(&self, error: &BoxError) -> NoAnswer {
        NoAnswer(explain(error.as_ref(), Some(self)))
    }
}

/// A request has no answer; the text is the problem with its fix.
#[derive(Debug)]
pub(crate) struct NoAnswer(String);

impl NoAnswer {
    /// Makes the error of a server that is silent for this time.
    pub(crate) fn silent(address: &ApiServerAddress, seconds: u64) -> Self {
        let url = &address.url;
        Self(format!(
            "no answer from {url} within {seconds} s; {IS_IT_UP}"
        ))
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NoAnswer {}

/// Returns the problem of a request without an answer, and its fix.
pub(super) fn explain(error: &(dyn Error + 'static), address: Option<&ApiServerAddress>) -> String {
    let url = address.map_or("the API server", |address| &address.url);
    let causes = causes(error);
    let tls = causes.iter().find_map(|cause| cause.downcast_ref());
    if let Some(tls) = tls {
        return tls_fault(tls, url);
    }
    let why = innermost(error);
    let mut all = causes.iter();
    let is_connect = all.any(|cause| {
        let hyper = cause.downcast_ref::<hyper_util::client::legacy::Error>();
        hyper.is_some_and(|error| error.is_connect())
    });
    match address.and_then(|address| address.proxy.as_deref()) {
        Some(proxy) if is_connect => format!(
            "no connection to {url}: the proxy {proxy} fails: {why}; correct proxy-url of the \
             kubeconfig's cluster or HTTPS_PROXY, or except the server from the proxy with NO_PROXY"
        ),
        _ if is_connect => format!("no connection to {url}: {why}; {IS_IT_UP}"),
        _ => format!("no answer from {url}: {why}; {IS_IT_UP}"),
    }
}

/// Returns the text of the last cause.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let causes = causes(error);
    causes.last().map_or_else(String::new, ToString::to_string)
}

/// Returns an error and its causes. A custom I/O error leaves itself out of the chain.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let mut all = vec![error];
    let mut next = Some(error);
    while let Some(error) = next {
        let own = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match own {
            Some(own) => Some(own as &(dyn Error + 'static)),
            None => error.source(),
        };
        all.extend(next);
    }
    all
}

fn tls_fault(error: &rustls::Error, url: &str) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    match error {
        InvalidCertificate(why) => format!("the certificate of {url} {}", certificate_fault(why)),
        AlertReceived(why) => format!(
            "{url} refuses the TLS connection ({why:?}); does it want a client certificate? Renew \
             that of the kubeconfig's user"
        ),
        InvalidMessage(_) => format!(
            "{url} does not answer with TLS; correct the port, or write http:// in server: of the \
             kubeconfig's cluster"
        ),
        other => format!("the TLS connection to {url} fails: {other}"),
    }
}

fn certificate_fault(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::Expired | E::ExpiredContext { .. } => {
            "has expired; renew it, or correct this machine's clock".to_owned()
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "is not valid yet; correct this machine's clock".to_owned()
        }
        E::UnknownIssuer | E::BadSignature => {
            "is from an unknown CA; name the server's CA in certificate-authority of the \
             kubeconfig's cluster"
                .to_owned()
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            "is for another name; correct server: of the kubeconfig's cluster, or set \
             tls-server-name there"
                .to_owned()
        }
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "is that of a CA, which must not be a server's; give the server a certificate that the \
             CA has signed"
                .to_owned()
        }
        other => format!("is not accepted ({other:?}); renew it"),
    }
}
