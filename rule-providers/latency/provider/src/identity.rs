//! Who an agent is: it may speak for its own node only.

use std::sync::Arc;

use tonic::{Request, Status};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::tokens::Tokens;

/// What an agent must show. The first that is configured and says yes suffices.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Whoever connects is believed: for networks that nobody else can reach.
    pub trust: bool,
    /// A client certificate (the server asks for one) that names the node.
    pub certificates: bool,
    /// A token that is bound to the node.
    pub tokens: Option<Arc<Tokens>>,
}

/// What came with a call.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// DER.
    certificate: Option<Vec<u8>>,
    token: Option<String>,
}

impl Shown {
    pub fn of<T>(request: &Request<T>) -> Self {
        let certificates = request.peer_certs();
        let first = certificates.as_ref().and_then(|all| all.first());
        let header = request.metadata().get("authorization");
        let header = header.and_then(|h| h.to_str().ok());
        let token = header.and_then(|h| h.strip_prefix("Bearer "));
        Self {
            certificate: first.map(|c| c.to_vec()),
            token: token.map(|t| t.trim().to_owned()),
        }
    }
}

impl Identity {
    /// Whether what was shown proves that the agent is on the node.
    ///
    /// # Errors
    /// Why it does not, and the mend.
    pub(crate) async fn admit(&self, shown: &Shown, node: &str) -> Result<(), Status> {
        if self.trust {
            return Ok(());
        }
        let refuse = Status::permission_denied;
        let mut why = Status::unauthenticated(
            "the provider has no way to know its agents: give it --tls-client-ca, --agent-tokens, \
             or, where nobody else can connect, --trust-agents",
        );
        if self.certificates {
            let names = shown.certificate.as_deref().map(names).unwrap_or_default();
            if names.iter().any(|n| n == node) {
                return Ok(());
            }
            why = refuse(format!(
                "the client certificate names {}, not node {node}; it needs the common name \
                 system:node:{node}, the DNS name {node} or a URI that ends with /node/{node}",
                if names.is_empty() {
                    "no node".to_owned()
                } else {
                    names.join(", ")
                },
            ));
        }
        match (&self.tokens, &shown.token) {
            (None, _) => Err(why),
            (Some(tokens), Some(token)) => match tokens.admit(token, node).await {
                Ok(()) => Ok(()),
                Err(e) => Err(refuse(e)),
            },
            (Some(_), None) => Err(Status::unauthenticated(
                "no token: send one of the agent's ServiceAccount, of the audience \
                 tautline-latency, as `authorization: Bearer TOKEN`",
            )),
        }
    }
}

/// The nodes that a certificate may speak for.
fn names(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return Vec::new();
    };
    let common = certificate.subject().iter_common_name();
    let common = common.filter_map(|cn| cn.as_str().ok()?.strip_prefix("system:node:"));
    let mut names: Vec<String> = common.map(str::to_owned).collect();
    let alternative = certificate.subject_alternative_name().ok().flatten();
    for name in alternative.iter().flat_map(|a| &a.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.push((*name).to_owned()),
            GeneralName::URI(uri) => {
                let after = uri.rsplit_once("/node/").map(|(_, node)| node);
                names.extend(after.map(str::to_owned));
            }
            _ => {}
        }
    }
    names.retain(|n| !n.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};
    use tonic::Code;

    use super::*;

    fn certificate(common: &str, sans: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = sans;
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn names_in_certificates() {
        assert_eq!(names(&certificate("system:node:a", vec![])), ["a"]);
        assert!(names(&certificate("a", vec![])).is_empty());
        let sans = vec![
            SanType::DnsName("b".try_into().unwrap()),
            SanType::URI("spiffe://x/agent/node/c".try_into().unwrap()),
            SanType::URI("spiffe://x/agent/c".try_into().unwrap()),
        ];
        assert_eq!(names(&certificate("x", sans)), ["b", "c"]);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(names(&bytes).is_empty());
        }
    }

    #[tokio::test]
    async fn nobody_is_believed_unless_told_to() {
        let shown = Shown {
            certificate: Some(certificate("system:node:a", vec![])),
            token: None,
        };
        let refused = Identity::default().admit(&shown, "a").await.unwrap_err();
        assert!(refused.message().contains("--trust-agents"), "{refused}");
        let identity = Identity {
            certificates: true,
            ..Identity::default()
        };
        identity.admit(&shown, "a").await.unwrap();
        let refused = identity.admit(&shown, "b").await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(
            refused.message().contains("names a, not node b"),
            "{refused}"
        );
        let refused = identity.admit(&Shown::default(), "a").await.unwrap_err();
        assert!(refused.message().contains("names no node"), "{refused}");
        let trusting = Identity {
            trust: true,
            ..identity
        };
        trusting.admit(&Shown::default(), "b").await.unwrap();
    }
}
