//! etcd, kube-apiserver, kube-scheduler, kwok.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    eventually,
    process::{Process, free_port},
    root,
};

/// Time for a component to be ready.
const READY: Duration = Duration::from_secs(60);

/// Who may come in, with which groups: administrators, the components, and our
/// service accounts, so that our own roles are what is tested.
const USERS: [(&str, &str, &str); 7] = [
    ("admin", "admin", "system:masters"),
    ("scheduler", "system:kube-scheduler", ""),
    ("kwok", "kwok", "system:masters"),
    (
        "extender",
        "system:serviceaccount:tautline-system:tautline-extender",
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

/// A control plane of its own, gone with this value.
pub struct ControlPlane {
    pub client: Client,
    pub dir: TempDir,
    binaries: PathBuf,
    api_port: u16,
    etcd_url: String,
    etcd: Process,
    apiserver: Process,
    scheduler: Option<Process>,
    kwok: Option<Process>,
}

/// The folder of the binaries, built if they are not there; `KUBEBUILDER_ASSETS`
/// is taken instead when set (kwok is then looked for there too).
fn binaries() -> Result<PathBuf> {
    if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") {
        return Ok(assets.into());
    }
    let script = root().join("tests/control-plane/build");
    let output = Command::new(&script)
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("{} does not run", script.display()))?;
    if !output.status.success() {
        bail!("{} failed; the end-to-end tests need Go", script.display());
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

impl ControlPlane {
    /// Starts etcd and the API server, RBAC on, and waits until they are ready.
    pub async fn start() -> Result<Self> {
        _ = rustls::crypto::ring::default_provider().install_default();
        let binaries = binaries()?;
        let dir = tempfile::Builder::new().prefix("tautline-").tempdir()?;
        let (etcd_port, peer_port, api_port) = (free_port()?, free_port()?, free_port()?);
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let peer = format!("http://127.0.0.1:{peer_port}");
        let etcd = Process::start(
            "etcd",
            &binaries.join("etcd"),
            &[
                "--name=e".into(),
                format!("--data-dir={}", dir.path().join("etcd").display()),
                format!("--listen-client-urls={etcd_url}"),
                format!("--advertise-client-urls={etcd_url}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=e={peer}"),
                "--unsafe-no-fsync".into(),
                "--log-level=warn".into(),
            ],
            dir.path(),
        )?;
        credentials(dir.path())?;
        let apiserver = start_apiserver(&binaries, dir.path(), &etcd_url, api_port)?;
        let mut kubeconfigs = Vec::new();
        for (user, ..) in USERS {
            kubeconfigs.push(write_kubeconfig(dir.path(), api_port, user)?);
        }
        let client = client(&kubeconfigs[0], &apiserver).await?;
        let (scheduler, kwok) = (None, None);
        let plane = Self {
            client,
            dir,
            binaries,
            api_port,
            etcd_url,
            etcd,
            apiserver,
            scheduler,
            kwok,
        };
        plane.ready().await;
        Ok(plane)
    }

    async fn ready(&self) {
        let check = async || {
            self.client
                .request_text(get("/readyz"))
                .await
                .is_ok()
                .then_some(())
        };
        eventually("the API server is ready", READY, check, async || {
            self.etcd.tail() + &self.apiserver.tail()
        })
        .await;
    }

    /// The kubeconfig file of one of the users (`admin`, `extender`, ...).
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.dir.path().join(format!("{user}.kubeconfig"))
    }

    /// Starts kube-scheduler with a configuration of `deploy/scheduler`, its
    /// extender led to `url` (verified by `ca`), or with none.
    pub async fn start_scheduler(&mut self, sample: Option<(&str, &str, &Path)>) -> Result<()> {
        let mut config = match sample {
            None => json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
            }),
            Some((file, url, ca)) => {
                let text = fs::read_to_string(root().join("deploy/scheduler").join(file))?;
                let mut config: Value = serde_saphyr::from_str(&text)?;
                config["extenders"][0]["urlPrefix"] = url.into();
                // Its own certificate serves as the client's, where the sample has one.
                let key = ca.with_extension("key");
                let tls = &mut config["extenders"][0]["tlsConfig"];
                for (field, file) in [("caFile", ca), ("certFile", ca), ("keyFile", &key)] {
                    if tls.get(field).is_some() {
                        tls[field] = file.display().to_string().into();
                    }
                }
                config
            }
        };
        config["clientConnection"]["kubeconfig"] =
            self.kubeconfig("scheduler").display().to_string().into();
        config["leaderElection"]["leaderElect"] = false.into();
        let path = self.dir.path().join("scheduler.json");
        fs::write(&path, config.to_string())?;
        let port = free_port()?;
        self.scheduler = Some(Process::start(
            "kube-scheduler",
            &self.binaries.join("kube-scheduler"),
            &[
                format!("--config={}", path.display()),
                "--bind-address=127.0.0.1".into(),
                format!("--secure-port={port}"),
                format!("--cert-dir={}", self.dir.path().join("scheduler").display()),
                "--authentication-skip-lookup=true".into(),
            ],
            self.dir.path(),
        )?);
        listening(port, "kube-scheduler", async || self.logs()).await;
        Ok(())
    }

    /// Starts kwok: nodes become ready, bound pods run, deleted ones go.
    pub async fn start_kwok(&mut self) -> Result<()> {
        let port = free_port()?;
        let stages = root().join("tests/control-plane/kwok/stages.yaml");
        self.kwok = Some(Process::start(
            "kwok",
            &self.binaries.join("kwok"),
            &[
                format!("--config={}", stages.display()),
                format!("--kubeconfig={}", self.kubeconfig("kwok").display()),
                "--manage-all-nodes=true".into(),
                format!("--server-address=127.0.0.1:{port}"),
                "--node-lease-duration-seconds=40".into(),
            ],
            self.dir.path(),
        )?);
        listening(port, "kwok", async || self.logs()).await;
        Ok(())
    }

    /// Ends the API server as a crash would, and starts it again.
    pub async fn restart_apiserver(&mut self) -> Result<()> {
        self.apiserver.kill();
        self.apiserver = start_apiserver(
            &self.binaries,
            self.dir.path(),
            &self.etcd_url,
            self.api_port,
        )?;
        self.ready().await;
        Ok(())
    }

    /// The ends of all logs, for a failed test.
    pub fn logs(&self) -> String {
        let optional = self.scheduler.iter().chain(&self.kwok);
        [&self.etcd, &self.apiserver]
            .into_iter()
            .chain(optional)
            .map(Process::tail)
            .collect()
    }
}

fn get(path: &str) -> http::Request<Vec<u8>> {
    let mut request = http::Request::new(Vec::new());
    *request.uri_mut() = path.parse().unwrap_or_default();
    request
}

async fn listening<S: std::fmt::Display>(port: u16, what: &str, state: impl AsyncFnOnce() -> S) {
    let check = async || {
        tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_ok()
            .then_some(())
    };
    eventually(&format!("{what} listens"), READY, check, state).await;
}

fn start_apiserver(binaries: &Path, dir: &Path, etcd: &str, port: u16) -> Result<Process> {
    let at = |name: &str| dir.join(name).display().to_string();
    Process::start(
        "kube-apiserver",
        &binaries.join("kube-apiserver"),
        &[
            format!("--etcd-servers={etcd}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", at("apiserver")),
            format!("--token-auth-file={}", at("tokens.csv")),
            "--authorization-mode=Node,RBAC".into(),
            "--endpoint-reconciler-type=none".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", at("sa.pub")),
            format!("--service-account-signing-key-file={}", at("sa.key")),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            // Both need the controller manager.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
        ],
        dir,
    )
}

/// Tokens for every user and the key of service accounts.
fn credentials(dir: &Path) -> Result<()> {
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

fn write_kubeconfig(dir: &Path, api_port: u16, user: &str) -> Result<PathBuf> {
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

async fn client(kubeconfig: &Path, apiserver: &Process) -> Result<Client> {
    // The API server writes its certificate itself, as it starts.
    let ca = kubeconfig.with_file_name("apiserver").join("apiserver.crt");
    let check = async || fs::metadata(&ca).ok().filter(|m| m.len() > 0);
    eventually("the API server's certificate", READY, check, async || {
        apiserver.tail()
    })
    .await;
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
