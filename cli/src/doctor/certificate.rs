//! Certificates in PEM.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use rustls::{
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
    fn parse(der: &[u8]) -> Result<Self, String> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|e| e.to_string())?;
        let alternatives = parsed.subject_alternative_name().ok().flatten();
        let names = alternatives.map(|san| san.value.general_names.as_slice());
        let dns = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        };
        let time = |seconds| Timestamp::from_second(seconds).map_err(|e| e.to_string());
        let validity = parsed.validity();
        Ok(Self {
            der: der.to_owned(),
            dns_names: names.unwrap_or_default().iter().filter_map(dns).collect(),
            not_before: time(validity.not_before.timestamp())?,
            not_after: time(validity.not_after.timestamp())?,
        })
    }

    pub(crate) fn is_valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Whether a client that connects to this name accepts the certificate.
    pub(crate) fn covers(&self, name: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_prefix("*.") {
            Some(domain) => name.split_once('.').is_some_and(|(_, rest)| rest == domain),
            None => pattern.eq_ignore_ascii_case(name),
        };
        self.dns_names.iter().any(matches)
    }
}

/// All certificates of a PEM text; a chain has the server's first.
pub(crate) fn all(pem: &[u8]) -> Result<Vec<Certificate>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .map(|der| Certificate::parse(&der.map_err(|e| e.to_string())?))
        .collect::<Result<Vec<_>, String>>()?;
    if certificates.is_empty() {
        return Err("no certificate in PEM".to_owned());
    }
    Ok(certificates)
}

/// Why `key` does not belong to the first certificate of `chain`; both are PEM.
pub(crate) fn key_fault(chain: &[u8], key: &[u8]) -> Option<String> {
    let check = || -> Result<(), String> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| format!("no private key: {e}"))?;
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| e.to_string())?;
        let key = any_supported_type(&key).map_err(|e| e.to_string())?;
        let pair = CertifiedKey::new(chain, Arc::clone(&key));
        match pair.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                Ok(())
            }
            Err(_) => Err("the key is of another certificate".to_owned()),
        }
    };
    check().err()
}
