//! Certificate sets. Pure: the caller passes the time and the CAs.

use std::{collections::BTreeSet, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

const SKEW: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
#[error("cannot generate a certificate for {names:?}: {reason}")]
pub(crate) struct CertificateError {
    names: BTreeSet<String>,
    reason: String,
}

/// When a generated certificate ends and when it is replaced.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The next set is generated after two thirds of it.
    pub lifetime: Duration,
    /// From the publication of a new CA to the first use of its certificate.
    pub overlap: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(90 * 24 * 3600),
            overlap: Duration::from_secs(300),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CertificateSet {
    pub made_unix: u64,
    pub ends_unix: u64,
    pub names: BTreeSet<String>,
    pub ca: String,
    pub cert: String,
    pub key: String,
}

impl CertificateSet {
    /// Generates a set, valid from an hour ago because clocks differ.
    pub fn generate(
        names: &BTreeSet<String>,
        now_unix: u64,
        lifetime: Duration,
    ) -> Result<Self, CertificateError> {
        let fail = |reason: String| CertificateError {
            names: names.clone(),
            reason,
        };
        let ends_unix = now_unix.saturating_add(lifetime.as_secs().max(1));
        let date = |unix: u64| {
            let unix = i64::try_from(unix).unwrap_or(i64::MAX);
            OffsetDateTime::from_unix_timestamp(unix).map_err(|e| fail(e.to_string()))
        };
        let (begins, ends) = (
            date(now_unix.saturating_sub(SKEW.as_secs()))?,
            date(ends_unix)?,
        );
        let made = || -> Result<(String, String, String), rcgen::Error> {
            let mut ca = CertificateParams::default();
            (ca.not_before, ca.not_after) = (begins, ends);
            ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            // A unique name: several CAs are in one bundle.
            let name = format!("tautline-admission-ca-{now_unix}");
            ca.distinguished_name.push(DnType::CommonName, name);
            let ca_key = KeyPair::generate()?;
            let ca_cert = ca.self_signed(&ca_key)?;
            let issuer = Issuer::new(ca, ca_key);
            let mut serving = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
            (serving.not_before, serving.not_after) = (begins, ends);
            serving.use_authority_key_identifier_extension = true;
            serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            let name = "tautline-admission";
            serving.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate()?;
            let cert = serving.signed_by(&key, &issuer)?;
            Ok((ca_cert.pem(), cert.pem(), key.serialize_pem()))
        };
        let (ca, cert, key) = made().map_err(|e| fail(e.to_string()))?;
        Ok(Self {
            made_unix: now_unix,
            ends_unix,
            names: names.clone(),
            ca,
            cert,
            key,
        })
    }
}

/// The oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CertificateSets(pub Vec<CertificateSet>);

impl CertificateSets {
    fn valid(&self, now_unix: u64) -> impl DoubleEndedIterator<Item = &CertificateSet> {
        self.0.iter().filter(move |g| now_unix < g.ends_unix)
    }

    /// The names of the next set if one is needed: no valid set, the newest older than two
    /// thirds of its lifetime, or missing names. Includes the names of the newest set, as other
    /// replicas may use them.
    pub fn needs_rotation(
        &self,
        names: &BTreeSet<String>,
        now_unix: u64,
        times: Times,
    ) -> Option<BTreeSet<String>> {
        let Some(newest) = self.valid(now_unix).next_back() else {
            return Some(names.clone());
        };
        let age = Duration::from_secs(now_unix.saturating_sub(newest.made_unix));
        let fits = names.is_subset(&newest.names);
        (age >= times.lifetime.mul_f64(2.0 / 3.0) || !fits)
            .then(|| newest.names.union(names).cloned().collect())
    }

    pub fn with(&self, next: CertificateSet, now_unix: u64) -> Self {
        Self(
            self.valid(now_unix)
                .cloned()
                .chain(std::iter::once(next))
                .collect(),
        )
    }

    pub fn bundle(&self, now_unix: u64) -> String {
        self.valid(now_unix).map(|g| g.ca.as_str()).collect()
    }

    /// The newest set whose CA has been trusted for the overlap, otherwise the oldest valid one.
    pub fn served(
        &self,
        now_unix: u64,
        times: Times,
        trusted: impl Fn(&str) -> bool,
    ) -> Option<&CertificateSet> {
        let trusted_long_enough = |g: &&CertificateSet| {
            now_unix >= g.made_unix.saturating_add(times.overlap.as_secs()) && trusted(&g.ca)
        };
        let newest = self.valid(now_unix).rev().find(trusted_long_enough);
        newest.or_else(|| self.valid(now_unix).next())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMES: Times = Times {
        lifetime: Duration::from_secs(300),
        overlap: Duration::from_secs(20),
    };

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|n| (*n).to_owned()).collect()
    }

    fn fake(made_unix: u64, of: &[&str]) -> CertificateSet {
        CertificateSet {
            made_unix,
            ends_unix: made_unix + 300,
            names: names(of),
            ca: format!("CA {made_unix}\n"),
            cert: String::new(),
            key: String::new(),
        }
    }

    #[test]
    fn generated_certificate_loads() {
        let made = CertificateSet::generate(
            &names(&["a.b.svc", "127.0.0.1"]),
            1_800_000_000,
            Duration::from_secs(60),
        )
        .unwrap();
        assert_eq!(made.ends_unix, 1_800_000_060);
        assert!(made.ca.starts_with("-----BEGIN CERTIFICATE") && made.ca != made.cert);
        let pem = tautline_runtime::tls::ServerPem {
            cert: &made.cert,
            key: &made.key,
            alpn: &[],
        };
        assert!(tautline_runtime::tls::ServerTls::from_pem(pem).is_ok());
    }

    #[test]
    fn rotation_step_by_step() {
        let wanted = names(&["a"]);
        let none = CertificateSets::default();
        assert_eq!(none.needs_rotation(&wanted, 0, TIMES), Some(wanted.clone()));
        let first = none.with(fake(0, &["a"]), 0);
        assert_eq!(first.needs_rotation(&wanted, 199, TIMES), None);
        let made = |g: Option<&CertificateSet>| g.map(|g| g.made_unix);
        assert_eq!(made(first.served(0, TIMES, |_| false)), Some(0));
        assert_eq!(
            first.needs_rotation(&wanted, 200, TIMES),
            Some(wanted.clone())
        );
        let two = first.with(fake(200, &["a"]), 200);
        assert_eq!(two.bundle(200), "CA 0\nCA 200\n");
        assert_eq!(made(two.served(219, TIMES, |_| true)), Some(0));
        assert_eq!(made(two.served(220, TIMES, |_| true)), Some(200));
        assert_eq!(made(two.served(299, TIMES, |ca| ca == "CA 0\n")), Some(0));
        assert_eq!(made(two.served(300, TIMES, |_| false)), Some(200));
        assert_eq!(two.bundle(300), "CA 200\n");
        assert_eq!(two.with(fake(400, &["a"]), 400).0.len(), 2);
    }

    #[test]
    fn new_names_are_added() {
        let one = CertificateSets::default().with(fake(0, &["a"]), 0);
        let wanted = one.needs_rotation(&names(&["b"]), 1, TIMES);
        assert_eq!(wanted, Some(names(&["a", "b"])));
        let two = one.with(fake(1, &["a", "b"]), 1);
        assert_eq!(two.needs_rotation(&names(&["a"]), 2, TIMES), None);
    }

    proptest! {
        /// The served CA is in every bundle of up to an overlap ago.
        #[test]
        fn served_ca_was_in_the_bundle_before(
            steps in proptest::collection::vec(1_u64..70, 1..80), lag in 0_u64..20,
        ) {
            let wanted = names(&["a"]);
            let mut now = 1000;
            let mut all = CertificateSets::default();
            let mut bundles: Vec<(u64, String)> = Vec::new();
            for step in steps {
                now += step;
                if all.needs_rotation(&wanted, now, TIMES).is_some() {
                    all = all.with(fake(now, &["a"]), now);
                }
                bundles.push((now, all.bundle(now)));
                let Some(served) = all.served(now, TIMES, |_| true) else {
                    prop_assert!(false, "nothing is served");
                    continue;
                };
                prop_assert!(now < served.ends_unix);
                let seen = bundles.iter().rev().find(|(at, _)| at + lag <= now);
                if let Some((_, bundle)) = seen {
                    prop_assert!(bundle.contains(&served.ca), "{now} {bundle} {}", served.ca);
                }
            }
        }
    }
}
