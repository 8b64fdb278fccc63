//! How a server calls rule providers, for all that do.

use std::{path::PathBuf, time::Duration};

use tautline_discovery::Config;
use tautline_runtime::tls::ClientFiles;

use crate::extender::parse_duration;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ProviderArgs {
    /// The most that one provider call may take [default: 500ms; the controller: 2s]
    #[arg(long, value_parser = parse_duration)]
    provider_deadline: Option<Duration>,
    /// Take providers and underlay controllers from these namespaces only
    #[arg(long, value_delimiter = ',', value_name = "NS,...")]
    provider_namespaces: Vec<String>,
    #[command(flatten)]
    tls: ClientTlsArgs,
}

/// For all that call providers, the replicas of one included.
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
    /// `defaults` with what was given.
    pub(crate) fn config(self, defaults: Config) -> Config {
        Config {
            deadline: self.provider_deadline.unwrap_or(defaults.deadline),
            namespaces: self.provider_namespaces,
            tls: client_files(self.tls),
            ..defaults
        }
    }
}
