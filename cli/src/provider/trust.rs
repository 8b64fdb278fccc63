//! The namespaces whose objects (tables, scripts) a provider applies to all namespaces.

use tautline_core::{TrustedNamespaces, trust::OWN_NAMESPACE};

use crate::provider_args;

#[derive(clap::Args)]
#[group(skip)]
pub(super) struct TrustArgs {
    #[command(flatten)]
    trust: provider_args::TrustArgs,
    /// Tautline's own namespace
    #[arg(
        long,
        value_name = "NS",
        default_value = OWN_NAMESPACE,
        env = "POD_NAMESPACE"
    )]
    namespace: String,
}

impl TrustArgs {
    pub(super) fn trusted(self) -> TrustedNamespaces {
        self.trust.trusted_namespaces(&self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        trust: TrustArgs,
    }

    fn trusted(args: &[&str]) -> TrustedNamespaces {
        let args = ["tautline", "--namespace", "own"].iter().chain(args);
        Command::try_parse_from(args).unwrap().trust.trusted()
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
