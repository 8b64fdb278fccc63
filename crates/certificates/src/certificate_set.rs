//! Generates sets of certificates, and selects the one to serve. Does no I/O: the caller passes the
//! time and the trusted CAs.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The time before its generation at which a certificate's validity begins, because clocks differ.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(3600);
/// The lifetime of a CA that clients have a copy of.
const KEPT_CA_LIFETIME: Duration = Duration::from_secs(3650 * 24 * 3600);

/// The way in which clients learn the CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ca {
    /// Each certificate has a CA of its own, whose key is discarded at once. The server publishes
    /// a new CA, and serves its certificate after `overlap`.
    Published {
        /// The time from the publication of a CA to the first use of its certificate.
        overlap: Duration,
    },
    /// Clients copy one CA, which is valid for ten years. Its key stays in the Secret, together
    /// with a certificate for clients that expires with the CA.
    Copied,
}

/// The lifetime of generated certificates, and the type of their CA.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The lifetime of a certificate. After two thirds of this time, the next set is generated.
    pub lifetime: Duration,
    /// The way in which clients learn the CA.
    pub ca: Ca,
}

impl Times {
    /// Returns the times of certificates that are valid for 90 days.
    pub fn new(ca: Ca) -> Self {
        Self {
            lifetime: Duration::from_secs(90 * 24 * 3600),
            ca,
        }
    }
}

/// The subject, names and times of a certificate to generate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The certificate's common name, with which the CA's common name begins.
    pub subject: &'a str,
    pub names: &'a BTreeSet<String>,
    pub now_unix: u64,
    pub times: Times,
}

/// A CA that is stored with its key, and so signs later certificates too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeptCa {
    pub name: String,
    pub ends_unix: u64,
    pub key: String,
    pub client_cert: String,
    pub client_key: String,
}

/// A serving certificate with its key and its CA, all in PEM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CertificateSet {
    pub made_unix: u64,
    pub ends_unix: u64,
    pub names: BTreeSet<String>,
    pub ca: String,
    pub cert: String,
    pub key: String,
    /// The CA's key and the client certificate; only with [`Ca::Copied`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_ca: Option<KeptCa>,
}

/// Returns the begin and the end of a certificate's validity. It begins [`MAX_CLOCK_SKEW`] before
/// now.
fn validity(now_unix: u64, ends_unix: u64) -> Result<(OffsetDateTime, OffsetDateTime)> {
    let date = |unix: u64| {
        let unix = i64::try_from(unix).unwrap_or(i64::MAX);
        OffsetDateTime::from_unix_timestamp(unix)
    };
    Ok((
        date(now_unix.saturating_sub(MAX_CLOCK_SKEW.as_secs()))?,
        date(ends_unix)?,
    ))
}

/// A CA with its key, either new or from an earlier set.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ca: String,
    ends_unix: u64,
}

impl Authority {
    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn generate(name: &str, now_unix: u64, ends_unix: u64) -> Result<Self> {
        let mut params = Self::params(name);
        (params.not_before, params.not_after) = validity(now_unix, ends_unix)?;
        let key = KeyPair::generate()?;
        let cert = params.self_signed(&key)?;
        Ok(Self {
            ca: cert.pem(),
            issuer: Issuer::new(params, key),
            ends_unix,
        })
    }

    fn kept(ca: &str, kept: &KeptCa) -> Result<Self> {
        let key = KeyPair::from_pem(&kept.key)?;
        Ok(Self {
            ca: ca.to_owned(),
            issuer: Issuer::new(Self::params(&kept.name), key),
            ends_unix: kept.ends_unix,
        })
    }

    /// Returns a certificate and its key, both in PEM. The certificate expires at `ends_unix`, or
    /// with the CA if that is earlier.
    fn sign(
        &self,
        (subject, names): (&str, &BTreeSet<String>),
        usage: ExtendedKeyUsagePurpose,
        (now_unix, ends_unix): (u64, u64),
    ) -> Result<(String, String)> {
        let names = names.iter().cloned().collect::<Vec<_>>();
        let mut params = CertificateParams::new(names)?;
        (params.not_before, params.not_after) = validity(now_unix, ends_unix.min(self.ends_unix))?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.distinguished_name.push(DnType::CommonName, subject);
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok((cert.pem(), key.serialize_pem()))
    }
}

impl CertificateSet {
    /// Generates the set that follows `earlier`. With [`Ca::Copied`], it has the CA of `earlier`
    /// while that is valid.
    pub fn generate(request: Request<'_>, earlier: &CertificateSets) -> Result<Self> {
        Self::signed(request, earlier)
            .with_context(|| format!("cannot generate a certificate for {:?}", request.names))
    }

    fn signed(request: Request<'_>, earlier: &CertificateSets) -> Result<Self> {
        let Request {
            subject,
            names,
            now_unix,
            times,
        } = request;
        let ends_unix = now_unix.saturating_add(times.lifetime.as_secs().max(1));
        // The name is unique, because one bundle contains several CAs.
        let ca_name = format!("{subject}-ca-{now_unix}");
        let (authority, kept_ca) = match times.ca {
            Ca::Published { .. } => (Authority::generate(&ca_name, now_unix, ends_unix)?, None),
            Ca::Copied => match earlier.kept_ca(now_unix) {
                Some((ca, kept)) => (Authority::kept(ca, kept)?, Some(kept.clone())),
                None => {
                    let ends_unix = now_unix.saturating_add(KEPT_CA_LIFETIME.as_secs());
                    let authority = Authority::generate(&ca_name, now_unix, ends_unix)?;
                    let client = (format!("{subject}-client"), BTreeSet::new());
                    let (client_cert, client_key) = authority.sign(
                        (&client.0, &client.1),
                        ExtendedKeyUsagePurpose::ClientAuth,
                        (now_unix, ends_unix),
                    )?;
                    let kept = KeptCa {
                        name: ca_name,
                        ends_unix,
                        key: authority.issuer.key().serialize_pem(),
                        client_cert,
                        client_key,
                    };
                    (authority, Some(kept))
                }
            },
        };
        let (cert, key) = authority.sign(
            (subject, names),
            ExtendedKeyUsagePurpose::ServerAuth,
            (now_unix, ends_unix),
        )?;
        Ok(Self {
            made_unix: now_unix,
            ends_unix: ends_unix.min(authority.ends_unix),
            names: names.clone(),
            ca: authority.ca,
            cert,
            key,
            kept_ca,
        })
    }
}

/// Sets of certificates, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CertificateSets(pub Vec<CertificateSet>);

impl CertificateSets {
    fn valid(&self, now_unix: u64) -> impl DoubleEndedIterator<Item = &CertificateSet> {
        self.0.iter().filter(move |g| now_unix < g.ends_unix)
    }

    /// Returns the newest CA that is stored with its key, unless the CA has expired. The
    /// certificates that it signed may have expired.
    pub fn kept_ca<'a>(&'a self, now_unix: u64) -> Option<(&'a str, &'a KeptCa)> {
        let kept = |set: &'a CertificateSet| Some((set.ca.as_str(), set.kept_ca.as_ref()?));
        let newest = self.0.iter().rev().find_map(kept);
        newest.filter(|(_, kept)| now_unix < kept.ends_unix)
    }

    /// Returns the names of the next set, or `None` if no set is needed. One is needed if there is
    /// no valid set, or if the newest is older than two thirds of the lifetime or lacks some of
    /// `names`. The result includes the names of the newest set, because other replicas may use
    /// them.
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

    /// Returns the CAs of all valid sets in PEM, each once.
    pub fn bundle(&self, now_unix: u64) -> String {
        let mut bundle: Vec<&str> = self.valid(now_unix).map(|g| g.ca.as_str()).collect();
        bundle.dedup();
        bundle.concat()
    }

    /// Returns the newest valid set whose CA clients know, or else the oldest valid set. Clients
    /// know a published CA if it is `trusted` and its set is at least as old as the overlap. They
    /// always know a copied CA.
    pub fn served(
        &self,
        now_unix: u64,
        times: Times,
        trusted: impl Fn(&str) -> bool,
    ) -> Option<&CertificateSet> {
        let known = |g: &&CertificateSet| match times.ca {
            Ca::Published { overlap } => {
                now_unix >= g.made_unix.saturating_add(overlap.as_secs()) && trusted(&g.ca)
            }
            Ca::Copied => true,
        };
        let newest = self.valid(now_unix).rev().find(known);
        newest.or_else(|| self.valid(now_unix).next())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tautline_runtime::tls::{ServerPem, ServerTls};

    use super::*;

    const TIMES: Times = Times {
        lifetime: Duration::from_secs(300),
        ca: Ca::Published {
            overlap: Duration::from_secs(20),
        },
    };
    const COPIED: Times = Times {
        ca: Ca::Copied,
        ..TIMES
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
            kept_ca: None,
        }
    }

    fn generate(now_unix: u64, times: Times, earlier: &CertificateSets) -> CertificateSet {
        let request = Request {
            subject: "tautline-test",
            names: &names(&["a.b.svc", "127.0.0.1"]),
            now_unix,
            times,
        };
        CertificateSet::generate(request, earlier).unwrap()
    }

    fn loads(set: &CertificateSet, client_ca: Option<&str>) -> bool {
        let pem = ServerPem {
            cert: &set.cert,
            key: &set.key,
            client_ca,
            alpn: &[],
        };
        ServerTls::from_pem(pem).is_ok()
    }

    #[test]
    fn generated_certificate_loads() {
        let made = generate(1_800_000_000, TIMES, &CertificateSets::default());
        assert_eq!(made.ends_unix, 1_800_000_300);
        assert!(made.ca.starts_with("-----BEGIN CERTIFICATE") && made.ca != made.cert);
        assert_eq!(made.kept_ca, None);
        assert!(loads(&made, None));
    }

    #[test]
    fn copied_ca_signs_the_next_certificates() {
        let start = 1_800_000_000;
        let first = generate(start, COPIED, &CertificateSets::default());
        assert!(loads(&first, Some(&first.ca)));
        let all = CertificateSets::default().with(first.clone(), start);
        // The server was down past the end of its certificate.
        let second = generate(start + 1000, COPIED, &all);
        assert_eq!(second.ca, first.ca);
        assert_ne!(second.cert, first.cert);
        assert_eq!(second.kept_ca, first.kept_ca);
        assert!(loads(&second, Some(&second.ca)));
        let both = all.with(second.clone(), start + 100);
        assert_eq!(both.bundle(start + 100), first.ca);
        let served = both.served(start + 1001, COPIED, |_| false);
        assert_eq!(served, Some(&second));
        // The last certificate ends with its CA; then there is a new one.
        let end = second.kept_ca.as_ref().unwrap().ends_unix;
        let all = CertificateSets(vec![second.clone()]);
        let last = generate(end - 10, COPIED, &all);
        assert_eq!((last.ends_unix, &last.ca), (end, &first.ca));
        let next = generate(end, COPIED, &CertificateSets(vec![last]));
        assert_ne!(next.ca, first.ca);
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
