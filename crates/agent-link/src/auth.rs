//! Checks that an agent runs on the node that it names. It may report for that node only.

use std::sync::Arc;

use tonic::{Request, Status};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::tokens::TokenReviewer;

/// The proofs of its node that an agent may give; one is enough. By default no agent is accepted.
#[derive(Clone, Debug, Default)]
pub struct AgentAuth {
    /// True if all agents are accepted without proof.
    pub trust_all: bool,
    /// True if client certificates that name the node are accepted. The server must ask for them.
    pub certificates: bool,
    /// The checker of tokens of the agents' ServiceAccount; `None` if tokens are not accepted.
    pub tokens: Option<Arc<TokenReviewer>>,
}

/// The credentials that an agent sends with a request.
#[derive(Debug, Default)]
pub struct Credentials {
    /// The client certificate, in DER.
    certificate: Option<Vec<u8>>,
    token: Option<String>,
}

impl Credentials {
    /// Reads the connection's client certificate, and the bearer token in the header
    /// `authorization`.
    pub fn of<T>(request: &Request<T>) -> Self {
        let certificates = request.peer_certs();
        let first = certificates.as_ref().and_then(|all| all.first());
        let token = request
            .metadata()
            .get("authorization")
            .and_then(|header| header.to_str().ok())
            .and_then(|header| header.strip_prefix("Bearer "));
        Self {
            certificate: first.map(|c| c.to_vec()),
            token: token.map(|t| t.trim().to_owned()),
        }
    }
}

impl AgentAuth {
    /// Returns whether agents can be accepted at all.
    pub fn is_configured(&self) -> bool {
        self.trust_all || self.certificates || self.tokens.is_some()
    }

    /// Checks that an accepted proof among the credentials names `node`. Needs no proof if all
    /// agents are trusted.
    pub async fn check(&self, credentials: &Credentials, node: &str) -> Result<(), Status> {
        if self.trust_all {
            return Ok(());
        }
        let refuse = Status::permission_denied;
        let mut why = Status::unauthenticated(
            "the provider accepts no agents: start it with --tls-client-ca, --agent-tokens, or, if \
             only agents can connect, --trust-agents",
        );
        if self.certificates {
            let names = credentials
                .certificate
                .as_deref()
                .map(certified_nodes)
                .unwrap_or_default();
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
        match (&self.tokens, &credentials.token) {
            (None, _) => Err(why),
            (Some(tokens), Some(token)) => {
                let checked = tokens.check(token, node).await;
                checked.map_err(|e| refuse(e.to_string()))
            }
            (Some(tokens), None) => Err(Status::unauthenticated(format!(
                "no token: send one of the agent's ServiceAccount, of the audience {}, as \
                 `authorization: Bearer TOKEN`",
                tokens.audience()
            ))),
        }
    }
}

fn certified_nodes(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        return Vec::new();
    };
    let common_names = certificate.subject().iter_common_name();
    let nodes = common_names.filter_map(|cn| cn.as_str().ok()?.strip_prefix("system:node:"));
    let mut names: Vec<String> = nodes.map(str::to_owned).collect();
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
    fn certificates_name_nodes() {
        assert_eq!(
            certified_nodes(&certificate("system:node:a", vec![])),
            ["a"]
        );
        assert!(certified_nodes(&certificate("a", vec![])).is_empty());
        let sans = vec![
            SanType::DnsName("b".try_into().unwrap()),
            SanType::URI("spiffe://x/agent/node/c".try_into().unwrap()),
            SanType::URI("spiffe://x/agent/c".try_into().unwrap()),
        ];
        assert_eq!(certified_nodes(&certificate("x", sans)), ["b", "c"]);
    }

    proptest! {
        #[test]
        fn malformed_certificates_name_no_node(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(certified_nodes(&bytes).is_empty());
        }
    }

    #[tokio::test]
    async fn proof_must_be_configured_and_name_the_node() {
        let credentials = Credentials {
            certificate: Some(certificate("system:node:a", vec![])),
            token: None,
        };
        let refused = AgentAuth::default()
            .check(&credentials, "a")
            .await
            .unwrap_err();
        assert!(refused.message().contains("--trust-agents"), "{refused}");
        let auth = AgentAuth {
            certificates: true,
            ..AgentAuth::default()
        };
        auth.check(&credentials, "a").await.unwrap();
        let refused = auth.check(&credentials, "b").await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(
            refused.message().contains("names a, not node b"),
            "{refused}"
        );
        let refused = auth.check(&Credentials::default(), "a").await.unwrap_err();
        assert!(refused.message().contains("names no node"), "{refused}");
        let trusting = AgentAuth {
            trust_all: true,
            ..auth
        };
        trusting.check(&Credentials::default(), "b").await.unwrap();
    }
}
