//! Clients by kubeconfigs that other people wrote into Secrets.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

/// The time without data after which a connection is dead, 75 s. A watch must be shorter.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(75);

/// Returns a client by the text of a kubeconfig, which may name no files and no programs. The client
/// tries no request again.
///
/// # Errors
/// The kubeconfig is malformed, or has a field that is not allowed. The error does not quote it.
pub async fn client(text: &[u8], connect_within: Duration) -> Result<Client> {
    let kubeconfig = parse(text)?;
    if let Some(field) = unsafe_field(&kubeconfig) {
        bail!("{field} is not allowed: give tokens and certificates as data");
    }
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.connect_timeout = Some(connect_within);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    config.default_retry = false;
    Client::try_from(config).map_err(|error| match error {
        // Their texts have the URL, which may have a password.
        kube::Error::ProxyProtocolUnsupported { .. }
        | kube::Error::ProxyProtocolDisabled { .. } => {
            anyhow!("proxy-url is not http, https or socks5")
        }
        error => error.into(),
    })
}

fn parse(text: &[u8]) -> Result<Kubeconfig> {
    let text = std::str::from_utf8(text).context("the kubeconfig is not UTF-8")?;
    Kubeconfig::from_yaml(text).map_err(|error| match error {
        // Its text quotes the lines around the fault, which may have the token.
        KubeconfigError::Parse(error) => {
            let at = error.location().map(|at| format!(" at line {}", at.line()));
            anyhow!("the kubeconfig is malformed{}", at.unwrap_or_default())
        }
        error => error.into(),
    })
}

/// Returns a field by which the author of the Secret would run programs in this process or read its
/// files, or by which anyone on the path could take the token. Kueue refuses these too.
fn unsafe_field(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let users = kubeconfig.auth_infos.iter();
    let of_user = users.filter_map(|of| of.auth_info.as_ref()).find_map(|of| {
        [
            (of.exec.is_some(), "exec"),
            (of.auth_provider.is_some(), "auth-provider"),
            (of.token_file.is_some(), "tokenFile"),
            (of.client_certificate.is_some(), "client-certificate"),
            (of.client_key.is_some(), "client-key"),
            (of.username.is_some() || of.password.is_some(), "username"),
        ]
        .into_iter()
        .find_map(|(is_set, field)| is_set.then_some(field))
    });
    let clusters = kubeconfig.clusters.iter();
    let of_cluster = clusters
        .filter_map(|of| of.cluster.as_ref())
        .find_map(|of| {
            let is_insecure = of.insecure_skip_tls_verify == Some(true);
            let insecure = is_insecure.then_some("insecure-skip-tls-verify");
            let server = of.server.as_deref().unwrap_or_default();
            let is_plain = server.to_ascii_lowercase().starts_with("http://");
            let insecure = insecure.or(is_plain.then_some("a server without TLS"));
            let has_file = of.certificate_authority.is_some();
            insecure.or(has_file.then_some("certificate-authority"))
        });
    of_user.or(of_cluster)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kubeconfig(user: &Value, cluster: &Value) -> String {
        let context = json!({"name": "c", "context": {"cluster": "c", "user": "u"}});
        let config = json!({"users": [{"name": "u", "user": user}],
                            "clusters": [{"name": "c", "cluster": cluster}],
                            "contexts": [context], "current-context": "c"});
        config.to_string()
    }

    #[test]
    fn kubeconfigs_run_no_programs_and_read_no_files() {
        let data = json!({"server": "https://east:6443", "certificate-authority-data": "YQ=="});
        let token = json!({"token": "t", "client-certificate-data": "YQ=="});
        let field = |user: &Value, cluster: &Value| {
            unsafe_field(&parse(kubeconfig(user, cluster).as_bytes()).unwrap())
        };
        assert_eq!(field(&token, &data), None);
        for (name, value) in [
            ("exec", json!({"command": "sh", "apiVersion": "v1"})),
            ("auth-provider", json!({"name": "oidc"})),
            ("tokenFile", json!("/t")),
            ("client-certificate", json!("/c")),
            ("client-key", json!("/k")),
            ("username", json!("admin")),
        ] {
            assert_eq!(field(&json!({name: value}), &data), Some(name));
        }
        let password = json!({"password": "p"});
        assert_eq!(field(&password, &data), Some("username"));
        for (name, value) in [
            ("certificate-authority", json!("/ca")),
            ("insecure-skip-tls-verify", json!(true)),
        ] {
            let cluster = json!({"server": "https://east:6443", name: value});
            assert_eq!(field(&token, &cluster), Some(name));
        }
        let plain = json!({"server": "HTTP://east:6443"});
        assert_eq!(field(&token, &plain), Some("a server without TLS"));
    }

    #[tokio::test]
    async fn errors_do_not_quote_the_kubeconfig() {
        let proxy = "ftp://u:hidden@proxy";
        let cluster = json!({"server": "https://east", "proxy-url": proxy});
        let bad_proxy = kubeconfig(&json!({"token": "hidden"}), &cluster);
        let file = kubeconfig(&json!({"tokenFile": "/hidden"}), &cluster);
        for (text, what) in [
            ("hidden", "malformed"),
            ("users: hidden", "malformed"),
            ("a: b\nusers: [{name: u, user: {token: hidden}", "malformed"),
            ("users:\n- name: u\n  user: {token: [hidden]}", "malformed"),
            (file.as_str(), "tokenFile is not allowed"),
            (bad_proxy.as_str(), "proxy-url"),
        ] {
            let error = client(text.as_bytes(), READ_TIMEOUT).await.err().unwrap();
            let error = format!("{error:#}");
            assert!(error.contains(what), "{text}: {error}");
            assert!(!error.contains("hidden"), "{text}: {error}");
        }
    }
}
