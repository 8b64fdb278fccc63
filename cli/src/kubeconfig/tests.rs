use std::fs;

use serde_json::json;

use super::*;

/// A folder with a kubeconfig of this cluster and user.
fn folder(cluster: &Value, user: &Value) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = json!({
        "clusters": [{"name": "prod", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
        "contexts": [
            {"name": "c", "context": {"cluster": "prod", "user": "me", "namespace": "shop"}},
            {"name": "lost", "context": {"cluster": "gone"}},
        ],
        "current-context": "c",
    });
    fs::write(dir.path().join("config"), file.to_string()).unwrap();
    dir
}

fn config(dir: &tempfile::TempDir, context: &str) -> Result<Config> {
    Kubeconfigs::read(Some(&dir.path().join("config")))?.config(context)
}

fn certificate() -> String {
    rcgen::generate_simple_self_signed(["a".to_owned()])
        .unwrap()
        .cert
        .pem()
}

fn base64(text: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(text)
}

#[test]
fn servers_are_completed_as_kubectl_does() {
    for (server, is_secure, expected) in [
        (
            "https://api.example:6443",
            false,
            Ok("https://api.example:6443/"),
        ),
        (
            "https://rancher.example/k8s/clusters/c-1",
            false,
            Ok("https://rancher.example/k8s/clusters/c-1"),
        ),
        ("10.0.0.1:6443", false, Ok("http://10.0.0.1:6443/")),
        ("10.0.0.1:6443", true, Ok("https://10.0.0.1:6443/")),
        ("localhost:8080", false, Ok("http://localhost:8080/")),
        ("api.example", true, Ok("https://api.example/")),
        ("", false, Err("is empty")),
        ("api.example/path", false, Err("is not a URL")),
        ("https://", false, Err("is not a URL")),
        ("ftp://api.example", false, Err("is neither https nor http")),
        ("a b", false, Err("is not a URL")),
    ] {
        let url = server_url(server, is_secure).map(|uri| uri.to_string());
        match (url, expected) {
            (Ok(url), Ok(expected)) => assert_eq!(url, expected),
            (Err(error), Err(part)) => {
                let error = error.to_string();
                assert!(
                    error.contains(part) && error.contains("write https://"),
                    "{error}"
                );
            }
            (url, _) => panic!("{server}: {url:?}"),
        }
    }
}

#[test]
fn data_may_have_line_breaks_or_be_empty_beside_a_file() {
    let pem = certificate();
    let data = base64(&pem);
    let (first, second) = data.split_at(70);
    let broken = format!("{first}\n  {second}\n");
    let written = folder(
        &json!({"server": "api.example", "certificate-authority-data": broken}),
        &json!({}),
    );
    let of_data = config(&written, "c").unwrap();
    assert_eq!(of_data.cluster_url, "https://api.example/");
    assert_eq!(of_data.default_namespace, "shop");
    let beside = folder(
        &json!({"server": "api.example", "certificate-authority": "ca.crt",
                "certificate-authority-data": "", "tls-server-name": "", "proxy-url": ""}),
        &json!({"username": "", "password": "", "token": "", "client-key-data": ""}),
    );
    fs::write(beside.path().join("ca.crt"), &pem).unwrap();
    let of_file = config(&beside, "c").unwrap();
    assert_eq!(of_file.root_cert, of_data.root_cert);
    assert_eq!(of_file.root_cert.unwrap().len(), 1);
    assert_eq!(of_file.tls_server_name, None);
    let user = serde_json::to_value(of_file.auth_info).unwrap();
    assert_eq!(user, json!({}), "no credentials");
}

#[test]
fn token_files_may_end_with_a_line_break() {
    let user = json!({"token": "old", "tokenFile": "token"});
    let dir = folder(&json!({"server": "https://api.example"}), &user);
    let token = |content: &str| {
        fs::write(dir.path().join("token"), content).unwrap();
        serde_json::to_value(config(&dir, "c").unwrap().auth_info).unwrap()
    };
    assert_eq!(token("abc\n"), json!({"token": "abc"}));
    let path = dir.path().join("token").display().to_string();
    assert_eq!(
        token("abc"),
        json!({"tokenFile": path}),
        "read again when it changes"
    );
}

#[test]
fn errors_name_file_field_and_fix() {
    let server = || json!({"server": "https://api.example"});
    let with = |field: &str, value: &str| {
        let mut cluster = server();
        cluster[field] = value.into();
        cluster
    };
    let user = |field: &str, value: &str| json!({field: value});
    for (cluster, user, context, expected) in [
        (
            json!({}),
            json!({}),
            "c",
            "clusters[prod].cluster.server: is empty; write https://",
        ),
        (
            with("server", "ftp://a"),
            json!({}),
            "c",
            "clusters[prod].cluster.server: \"ftp://a\" is neither",
        ),
        (
            with("proxy-url", "ftp://p"),
            json!({}),
            "c",
            "clusters[prod].cluster.proxy-url: there are no proxies of ftp",
        ),
        (
            with("certificate-authority-data", "%"),
            json!({}),
            "c",
            "cluster.certificate-authority-data: is not base64",
        ),
        (
            with("certificate-authority-data", "aGk="),
            json!({}),
            "c",
            "cluster.certificate-authority-data: holds no certificate",
        ),
        (
            with("certificate-authority", "none"),
            json!({}),
            "c",
            "/none: cannot be read; correct the path",
        ),
        (
            server(),
            user("tokenFile", "none"),
            "c",
            "users[me].user.tokenFile: ",
        ),
        (
            server(),
            user("client-key-data", "aGk="),
            "c",
            "users[me].user.client-certificate: is missing beside",
        ),
        (
            server(),
            json!({"exec": "secret"}),
            "c",
            "users[me].user.exec: is not struct ExecConfig",
        ),
        (
            server(),
            json!({}),
            "lost",
            "clusters: there is none of the name \"gone\"",
        ),
        (
            server(),
            json!({}),
            "d",
            "contexts: there is none of the name \"d\"; correct the name, or choose another with --context; there are: c, lost",
        ),
    ] {
        let dir = folder(&cluster, &user);
        let error = format!("{:#}", config(&dir, context).unwrap_err());
        let file = format!("kubeconfig {}", dir.path().join("config").display());
        assert!(
            error.starts_with(&file) && error.contains(expected),
            "{expected}\n{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    fs::write(&file, "users: [\n  token: secret\n").unwrap();
    let error = format!("{:#}", Kubeconfigs::read(Some(&file)).unwrap_err());
    assert!(
        error.contains("not valid YAML: line ") && !error.contains("secret"),
        "{error}"
    );
}
