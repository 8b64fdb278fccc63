//! Which namespaces a provider takes configuration from, for all namespaces.

use tautline_core::{TrustedNamespaces, trust::OWN_NAMESPACE};

#[derive(clap::Args)]
pub(super) struct TrustArgs {
    /// Objects of these namespaces (tables, scripts) count for pods of all namespaces,
    /// others for pods of their own only; *: those of every namespace count for all
    /// [default: that of --namespace]
    #[arg(long, value_delimiter = ',', value_name = "NS,...")]
    provider_namespaces: Vec<String>,
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
        match self.provider_namespaces.is_empty() {
            true => TrustedNamespaces::from_iter([self.namespace]),
            false => self.provider_namespaces.into_iter().collect(),
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
