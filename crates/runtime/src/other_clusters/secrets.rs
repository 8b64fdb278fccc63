//! Reads the settings of other clusters from Secrets.

use std::{collections::BTreeMap, fmt, num::NonZeroU16, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use tautline_core::{dns, duration, remote::Fault};

/// The label of a Secret with a kubeconfig. Its value is the name that offers have for the cluster.
pub const CLUSTER_LABEL: &str = "tautline.io/cluster";
const KUBECONFIG: &str = "kubeconfig";
/// The annotation for the time for which pods are used after the last contact.
const GRACE: &str = "tautline.io/grace";
const DEFAULT_GRACE: Duration = Duration::from_secs(300);
/// The annotation for the port to which the delay of a node is measured.
const NODE_PORT: &str = "tautline.io/node-port";
/// The kubelet's port.
const DEFAULT_NODE_PORT: u16 = 10_250;

/// The settings of clusters by their names, or the faults of their Secrets.
pub(super) type Clusters = BTreeMap<Arc<str>, Result<Settings, Fault>>;

/// The settings of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) access: Arc<Access>,
    /// The time for which the pods are used after the last contact.
    pub(super) grace: Duration,
}

/// The settings of a contact; a change of them needs a new one.
#[derive(PartialEq)]
pub(super) struct Access {
    pub(super) kubeconfig: Vec<u8>,
    /// The port of nodes to which delays are measured.
    pub(super) node_port: u16,
}

impl fmt::Debug for Access {
    /// The kubeconfig is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("node_port", &self.node_port)
            .finish_non_exhaustive()
    }
}

/// Returns the settings in all Secrets with [`CLUSTER_LABEL`].
pub(super) fn clusters(secrets: &[Arc<Secret>]) -> Clusters {
    let mut all = Clusters::new();
    for secret in secrets {
        let label = secret.labels().get(CLUSTER_LABEL);
        let Some(cluster) = label.filter(|name| dns::is_label(name)) else {
            tracing::warn!(
                secret = %secret.name_any(),
                "the value of the label {CLUSTER_LABEL} is not the name of a cluster: it has at \
                 most 63 lower-case letters, digits and '-'"
            );
            continue;
        };
        let settings = settings(secret).map_err(|error| {
            tracing::warn!(
                %cluster,
                secret = %secret.name_any(),
                error = format!("{error:#}"),
                "the Secret of another cluster cannot be used"
            );
            Fault::BadSecret
        });
        all.entry(cluster.as_str().into())
            // A choice between two would decide whose pods are peers.
            .and_modify(|taken| *taken = Err(Fault::SeveralSecrets))
            .or_insert(settings);
    }
    all
}

fn settings(secret: &Secret) -> Result<Settings> {
    let data = secret.data.as_ref();
    let kubeconfig = data.and_then(|data| data.get(KUBECONFIG));
    let kubeconfig = kubeconfig.with_context(|| format!("it has no key {KUBECONFIG}"))?;
    let annotations = secret.annotations();
    let grace = match annotations.get(GRACE) {
        Some(text) => duration::parse(text).context(GRACE)?,
        None => DEFAULT_GRACE,
    };
    let node_port = match annotations.get(NODE_PORT) {
        Some(text) => {
            let port = text.parse::<NonZeroU16>();
            port.with_context(|| format!("{NODE_PORT} {text:?}"))?.get()
        }
        None => DEFAULT_NODE_PORT,
    };
    let kubeconfig = kubeconfig.0.clone();
    Ok(Settings {
        access: Arc::new(Access {
            kubeconfig,
            node_port,
        }),
        grace,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};

    use super::*;

    fn secret(name: &str, cluster: &str, annotations: &[(&str, &str)]) -> Secret {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let label = (CLUSTER_LABEL.to_owned(), cluster.to_owned());
        let kubeconfig = ByteString(b"hidden".to_vec());
        Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(BTreeMap::from([label])),
                annotations: Some(annotations.iter().map(owned).collect()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(KUBECONFIG.to_owned(), kubeconfig)])),
            ..Secret::default()
        }
    }

    fn read(secrets: impl IntoIterator<Item = Secret>) -> Clusters {
        let secrets: Vec<_> = secrets.into_iter().map(Arc::new).collect();
        clusters(&secrets)
    }

    /// The fault of the one Secret.
    fn fault(secret: Secret) -> Option<Fault> {
        let all = read([secret]);
        assert_eq!(all.len(), 1);
        all["east"].as_ref().err().copied()
    }

    #[test]
    fn settings_are_those_of_the_annotations() {
        let given = [(GRACE, "20s"), (NODE_PORT, "5310")];
        let all = read([secret("a", "east", &given), secret("b", "west", &[])]);
        let settings = |name: &str| {
            let settings = all[name].as_ref().unwrap();
            (settings.grace.as_secs(), settings.access.node_port)
        };
        assert_eq!(settings("east"), (20, 5310));
        assert_eq!(settings("west"), (300, 10_250));
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn two_secrets_of_one_name_are_a_fault_of_both() {
        let bad = secret("c", "east", &[(GRACE, "soon")]);
        let secrets = ["a", "b"].map(|name| secret(name, "east", &[]));
        let all = read(secrets.into_iter().chain([bad]));
        assert_eq!(all["east"], Err(Fault::SeveralSecrets));
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn malformed_secrets_are_a_fault_of_their_cluster() {
        for (key, value) in [
            (GRACE, "soon"),
            (GRACE, "-1s"),
            (GRACE, ""),
            (NODE_PORT, "0"),
            (NODE_PORT, "65536"),
            (NODE_PORT, "kubelet"),
        ] {
            let bad = secret("a", "east", &[(key, value)]);
            assert_eq!(fault(bad), Some(Fault::BadSecret), "{key}: {value}");
        }
        let empty = Secret {
            data: None,
            ..secret("a", "east", &[])
        };
        assert_eq!(fault(empty), Some(Fault::BadSecret));
        assert_eq!(fault(secret("a", "east", &[])), None);
    }

    #[test]
    fn label_must_be_the_name_of_a_cluster() {
        for name in ["", "East", "a.b", "a_b", "-a"] {
            let all = read([secret("a", name, &[]), secret("b", "west", &[])]);
            let names: Vec<&str> = all.keys().map(|name| &**name).collect();
            assert_eq!(names, ["west"], "{name}");
        }
    }

    #[test]
    fn debug_text_has_no_kubeconfig() {
        let text = format!("{:?}", read([secret("a", "east", &[])]));
        let bytes = format!("{:?}", b"hidden");
        assert!(text.contains("10250"), "{text}");
        assert!(!text.contains("hidden") && !text.contains(&bytes), "{text}");
    }
}
