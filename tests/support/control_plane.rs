//! etcd and kube-apiserver, and [`ControlPlane`], which owns a test's control plane.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use k8s_openapi::ByteString;
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
    users::{USERS, credentials, write_kubeconfig},
};

const DISABLED_PLUGINS: &str = "--disable-admission-plugins=";
/// Time for a component to be ready.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(180);

/// A control plane; it ends when this value is dropped.
pub struct ControlPlane {
    /// A client that may do everything.
    pub client: Client,
    /// The test's folder: logs, certificates, kubeconfigs, data of etcd. Dropping it deletes the
    /// folder.
    pub dir: TempDir,
    pub(crate) binaries: PathBuf,
    /// The other components, by name.
    pub(crate) components: BTreeMap<&'static str, Process>,
    api_port: u16,
    etcd_url: String,
    /// More arguments of the API server.
    args: Vec<String>,
    etcd: Process,
    apiserver: Process,
}

/// True if `TAUTLINE_TEST_KUBERNETES` chooses the oldest Kubernetes that we support.
fn oldest() -> Result<bool> {
    match std::env::var("TAUTLINE_TEST_KUBERNETES").as_deref() {
        Err(_) | Ok("newest") => Ok(false),
        Ok("oldest") => Ok(true),
        Ok(other) => bail!("TAUTLINE_TEST_KUBERNETES is {other}; use newest or oldest"),
    }
}

/// True on the oldest Kubernetes, where a test skips `part`; prints so.
pub fn skipped_on_oldest(part: &str) -> bool {
    let skipped = oldest().is_ok_and(|oldest| oldest);
    if skipped {
        println!("skipped on the oldest Kubernetes: {part}");
    }
    skipped
}

/// The folder of the binaries, built if they are missing. `KUBEBUILDER_ASSETS` replaces it;
/// kwok must be there too then.
fn binaries() -> Result<PathBuf> {
    if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") {
        return Ok(assets.into());
    }
    build(oldest()?.then_some("--oldest"))
}

/// Runs the script that builds the components, and returns their folder.
pub(crate) fn build(part: Option<&str>) -> Result<PathBuf> {
    let script = root().join("tests/control-plane/build");
    let output = Command::new(&script)
        .args(part)
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
        Self::start_with(|_| Ok(Vec::new())).await
    }

    /// The same with more arguments for the API server. `args` gets the test's folder and may
    /// write files there. Its `--disable-admission-plugins=` replaces the default.
    pub async fn start_with(args: impl FnOnce(&Path) -> Result<Vec<String>>) -> Result<Self> {
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
        let args = args(dir.path())?;
        let apiserver = start_apiserver(&binaries, dir.path(), &etcd_url, api_port, &args)?;
        let mut kubeconfigs = Vec::new();
        for (user, ..) in USERS {
            kubeconfigs.push(write_kubeconfig(dir.path(), api_port, user)?);
        }
        let client = client(&kubeconfigs[0], &apiserver).await?;
        let plane = Self {
            client,
            dir,
            binaries,
            components: BTreeMap::new(),
            api_port,
            etcd_url,
            args,
            etcd,
            apiserver,
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
        eventually(
            "the API server is ready",
            READY_TIMEOUT,
            check,
            async || self.etcd.tail() + &self.apiserver.tail(),
        )
        .await;
    }

    /// The kubeconfig file of one of the users (`admin`, `extender`, ...).
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.dir.path().join(format!("{user}.kubeconfig"))
    }

    /// The kubeconfig of one of the users for another cluster's Secret: it names no files.
    pub fn kubeconfig_without_files(&self, user: &str) -> Result<String> {
        let text = fs::read_to_string(self.kubeconfig(user))?;
        let mut config: Value = serde_json::from_str(&text)?;
        let cluster = &mut config["clusters"][0]["cluster"];
        let ca = ByteString(fs::read(self.dir.path().join("apiserver/apiserver.crt"))?);
        *cluster = json!({"server": cluster["server"], "certificate-authority-data": ca});
        Ok(config.to_string())
    }

    /// A client with the account of one of the users that retries nothing: `client` retries
    /// 429, also that of a disruption budget, for minutes.
    pub async fn client_as(&self, user: &str) -> Result<Client> {
        let mut config = config(&self.kubeconfig(user)).await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// Kills the API server and starts it again.
    pub async fn restart_apiserver(&mut self) -> Result<()> {
        self.apiserver_away(Duration::ZERO).await
    }

    /// Kills the API server and starts it again after `pause`.
    pub async fn apiserver_away(&mut self, pause: Duration) -> Result<()> {
        self.stop_apiserver();
        tokio::time::sleep(pause).await;
        self.start_apiserver().await
    }

    /// Kills the API server.
    pub fn stop_apiserver(&mut self) {
        self.apiserver.kill();
    }

    /// Starts the API server after [`Self::stop_apiserver`], and waits until it is ready.
    pub async fn start_apiserver(&mut self) -> Result<()> {
        self.apiserver = start_apiserver(
            &self.binaries,
            self.dir.path(),
            &self.etcd_url,
            self.api_port,
            &self.args,
        )?;
        self.ready().await;
        Ok(())
    }

    /// Seconds of processor time that the API server has used so far.
    pub fn apiserver_cpu_seconds(&self) -> f64 {
        self.apiserver.cpu_seconds()
    }

    /// The ends of all logs, for a failed test.
    pub fn logs(&self) -> String {
        [&self.etcd, &self.apiserver]
            .into_iter()
            .chain(self.components.values())
            .map(Process::tail)
            .collect()
    }
}

fn get(path: &str) -> http::Request<Vec<u8>> {
    let mut request = http::Request::new(Vec::new());
    *request.uri_mut() = path.parse().unwrap_or_default();
    request
}

fn start_apiserver(
    binaries: &Path,
    dir: &Path,
    etcd: &str,
    port: u16,
    more: &[String],
) -> Result<Process> {
    let at = |name: &str| dir.join(name).display().to_string();
    let args = [
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
        // Off by default; it requires more rights for owner references.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".into(),
    ];
    let mut args = [&args, more].concat();
    if !more.iter().any(|arg| arg.starts_with(DISABLED_PLUGINS)) {
        // Both need the controller manager, which not every test starts.
        let plugins = "ServiceAccount,TaintNodesByCondition";
        args.push(format!("{DISABLED_PLUGINS}{plugins}"));
    }
    Process::start(
        "kube-apiserver",
        &binaries.join("kube-apiserver"),
        &args,
        dir,
    )
}

async fn client(kubeconfig: &Path, apiserver: &Process) -> Result<Client> {
    // The API server writes its certificate as it starts.
    let ca = kubeconfig.with_file_name("apiserver").join("apiserver.crt");
    let check = async || fs::metadata(&ca).ok().filter(|m| m.len() > 0);
    eventually(
        "the API server's certificate",
        READY_TIMEOUT,
        check,
        async || apiserver.tail(),
    )
    .await;
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

async fn config(kubeconfig: &Path) -> Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}
