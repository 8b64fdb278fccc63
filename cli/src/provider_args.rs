//! Defines the command-line flags of servers that call rule providers: trust, other clusters,
//! deadlines and TLS.

use std::{path::PathBuf, time::Duration};

use tautline_core::{
    providers::ExternalNames,
    trust::{KeyPattern, OWN_NAMESPACE, TrustedNamespaces},
};
use tautline_provider_client::{ClientConfig, config::SHARED_ANNOTATIONS};
use tautline_runtime::tls::ClientFiles;

use crate::{
    choice_arg::{Choice, one_of},
    duration_arg::parse_duration,
    scope,
};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ProviderArgs {
    /// The most that one provider call may take [default: 500ms; the controller: 2s]
    #[arg(long, value_parser = parse_duration)]
    provider_deadline: Option<Duration>,
    #[command(flatten)]
    pub(crate) own: OwnArgs,
    /// Namespace of the Secrets with the kubeconfigs of other clusters, whose pods offers can name
    /// [default: off]
    #[arg(long, value_name = "NS", value_parser = scope::name)]
    pub(crate) cluster_secrets: Option<String>,
    /// Where Tautline calls providers whose Service is of type ExternalName: the author of
    /// such a Service chooses the address
    #[arg(long, value_name = "WHERE", default_value = "off", value_parser = one_of(&EXTERNAL_NAMES))]
    external_name_providers: ExternalNames,
    /// Annotations of a pod that providers of other namespaces receive; KEYS may end with *
    #[arg(long, value_delimiter = ',', value_name = "KEYS,...", default_values = SHARED_ANNOTATIONS)]
    share_annotations: Vec<KeyPattern>,
    #[command(flatten)]
    tls: ClientTlsArgs,
}

/// Tautline's own namespace, and the namespaces that all others trust.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct OwnArgs {
    /// Tautline's own namespace
    #[arg(long, value_name = "NS", default_value = OWN_NAMESPACE, env = "POD_NAMESPACE")]
    pub(crate) namespace: String,
    #[command(flatten)]
    trust: TrustArgs,
}

impl OwnArgs {
    pub(crate) fn trusted(&self) -> TrustedNamespaces {
        self.trust.trusted_namespaces(&self.namespace)
    }
}

/// Namespaces that all others trust.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct TrustArgs {
    /// Trusted namespaces: their providers, underlay controllers, tables and scripts count for
    /// pods of all namespaces, those of any other namespace for its own pods only; *: trust
    /// every namespace [default: Tautline's own, tautline-system or that of --namespace]
    #[arg(long, value_delimiter = ',', value_name = "NS,...")]
    provider_namespaces: Vec<String>,
}

impl TrustArgs {
    /// Returns the namespaces of the flag, else Tautline's own namespace `own`.
    pub(crate) fn trusted_namespaces(&self, own: &str) -> TrustedNamespaces {
        match self.provider_namespaces.as_slice() {
            [] => TrustedNamespaces::new([own]),
            names => TrustedNamespaces::new(names),
        }
    }
}

const EXTERNAL_NAMES: [Choice<ExternalNames>; 3] = [
    (
        "off",
        "Nowhere: such Services are not called",
        ExternalNames::Off,
    ),
    (
        "remote",
        "Anywhere but loopback and link-local addresses",
        ExternalNames::Remote,
    ),
    ("any", "Anywhere: for tests", ExternalNames::Any),
];

/// TLS of calls to providers, and between replicas of one.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ClientTlsArgs {
    /// CA of providers that require TLS
    #[arg(long, value_name = "FILE")]
    provider_ca: Option<PathBuf>,
    /// Certificate to show to providers
    #[arg(long, value_name = "FILE", requires = "provider_key")]
    provider_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "provider_cert")]
    provider_key: Option<PathBuf>,
}

pub(crate) fn client_files(args: ClientTlsArgs) -> ClientFiles {
    ClientFiles {
        ca: args.provider_ca,
        identity: args.provider_cert.zip(args.provider_key),
    }
}

impl ProviderArgs {
    /// Applies the flags to `defaults`.
    pub(crate) fn config(self, defaults: ClientConfig) -> ClientConfig {
        ClientConfig {
            deadline: self.provider_deadline.unwrap_or(defaults.deadline),
            trusted: self.own.trusted(),
            external_names: self.external_name_providers,
            shared_annotations: self.share_annotations,
            tls: client_files(self.tls),
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        own: OwnArgs,
    }

    fn trusted(args: &[&str]) -> TrustedNamespaces {
        let args = ["tautline", "--namespace", "own"].iter().chain(args);
        Command::try_parse_from(args).unwrap().own.trusted()
    }

    #[test]
    fn own_namespace_is_trusted_unless_others_are_named() {
        assert!(trusted(&[]).contains("own"));
        assert!(!trusted(&[]).contains("shop"));
        let named = trusted(&["--provider-namespaces", "a,b"]);
        assert!(named.contains("b") && !named.contains("own"));
        assert!(trusted(&["--provider-namespaces", "*"]).contains("shop"));
    }
}
