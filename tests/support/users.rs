//! Users of a test's API server, and their credentials.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::json;

/// Users and their groups: administrators, the components, and our service accounts, so that
/// tests check the deployed roles.
pub(crate) const USERS: [(&str, &str, &str); 16] = [
    ("admin", "admin", "system:masters"),
    ("scheduler", "system:kube-scheduler", ""),
    ("manager", "system:kube-controller-manager", ""),
    ("kwok", "kwok", "system:masters"),
    ("kueue", "kueue", "system:masters"),
    // A user with only the rights that a test grants.
    ("author", "ann", ""),
    // A user who may edit one namespace.
    ("tenant", "tina", ""),
    (
        "admission",
        "system:serviceaccount:tautline-system:tautline-admission",
        "system:serviceaccounts",
    ),
    (
        "extender",
        "system:serviceaccount:tautline-system:tautline-extender",
        "system:serviceaccounts",
    ),
    (
        "controller",
        "system:serviceaccount:tautline-system:tautline-controller",
        "system:serviceaccounts",
    ),
    (
        "dispatcher",
        "system:serviceaccount:tautline-system:tautline-dispatcher",
        "system:serviceaccounts",
    ),
    // The account of the dispatcher in a worker cluster.
    (
        "worker-dispatch",
        "system:serviceaccount:tautline-system:tautline-dispatch",
        "system:serviceaccounts",
    ),
    // The account of extender and controller in another cluster.
    (
        "peer",
        "system:serviceaccount:tautline-peer:tautline-peer",
        "system:serviceaccounts",
    ),
    (
        "gpu-slice",
        "system:serviceaccount:tautline-system:tautline-gpu-slice",
        "system:serviceaccounts",
    ),
    (
        "latency",
        "system:serviceaccount:tautline-system:tautline-latency",
        "system:serviceaccounts",
    ),
    (
        "scripted",
        "system:serviceaccount:tautline-system:tautline-scripted",
        "system:serviceaccounts",
    ),
];

/// Tokens for every user and the key of service accounts.
pub(crate) fn credentials(dir: &Path) -> Result<()> {
    let mut tokens = String::new();
    for (user, name, groups) in USERS {
        tokens += &format!("{user}-token,{name},{user},\"{groups}\"\n");
    }
    fs::write(dir.join("tokens.csv"), tokens)?;
    let key = rcgen::KeyPair::generate()?;
    fs::write(dir.join("sa.key"), key.serialize_pem())?;
    fs::write(dir.join("sa.pub"), key.public_key_pem())?;
    Ok(())
}

pub(crate) fn write_kubeconfig(dir: &Path, api_port: u16, user: &str) -> Result<PathBuf> {
    let path = dir.join(format!("{user}.kubeconfig"));
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://127.0.0.1:{api_port}"),
            "certificate-authority": dir.join("apiserver/apiserver.crt").display().to_string(),
        }}],
        "users": [{"name": user, "user": {"token": format!("{user}-token")}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
    });
    fs::write(&path, config.to_string())?;
    Ok(path)
}
