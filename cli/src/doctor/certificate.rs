//! Reads certificates in PEM.

use anyhow::{Result, anyhow, bail, ensure};
use k8s_openapi::jiff::Timestamp;
use rustls::{
    Error, InconsistentKeys,
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A certificate's names and validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    pub der: Vec<u8>,
    pub dns_names: Vec<String>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Certificate {
    fn parse(der: &[u8]) -> Result<Self> {
        let (_, parsed) = X509Certificate::from_der(der)?;
        let alternatives = parsed.subject_alternative_name().ok().flatten();
        let names = alternatives.iter().flat_map(|s| &s.value.general_names);
        let dns = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        };
        let validity = parsed.validity();
        Ok(Self {
            der: der.to_owned(),
            dns_names: names.filter_map(dns).collect(),
            not_before: Timestamp::from_second(validity.not_before.timestamp())?,
            not_after: Timestamp::from_second(validity.not_after.timestamp())?,
        })
    }

    pub(crate) fn is_valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Returns whether a client that connects to this name accepts the certificate.
    pub(crate) fn covers(&self, name: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_prefix("*.") {
            Some(domain) => name.split_once('.').is_some_and(|(_, rest)| rest == domain),
            None => pattern.eq_ignore_ascii_case(name),
        };
        self.dns_names.iter().any(matches)
    }
}

/// Reads all certificates of a PEM text. In a chain the server's certificate is the first.
pub(crate) fn all(pem: &[u8]) -> Result<Vec<Certificate>> {
    let all: Vec<Certificate> = CertificateDer::pem_slice_iter(pem)
        .map(|der| Certificate::parse(&der?))
        .collect::<Result<_>>()?;
    ensure!(!all.is_empty(), "no certificate in PEM");
    Ok(all)
}

/// Checks that `key` belongs to the first certificate of `chain`; both are PEM.
pub(crate) fn check_key(chain: &[u8], key: &[u8]) -> Result<()> {
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| anyhow!("no private key: {e}"))?;
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>()?;
    match CertifiedKey::new(chain, any_supported_type(&key)?).keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        Err(_) => bail!("the key is of another certificate"),
    }
}
