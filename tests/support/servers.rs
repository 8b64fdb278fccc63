//! Our servers as processes of the real binary.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::{
    PATIENCE,
    control_plane::ControlPlane,
    eventually, metrics_reference,
    process::{Process, free_port},
};

/// Time for a server to read a large cluster; if the server ends, the test fails at once.
const READY: Duration = Duration::from_secs(180);

pub use crate::loopback::{KeepAlive, get, insecure_connect, insecure_post, insecure_post_from};

/// The binary, which `cargo test --workspace` builds next to the tests.
pub fn binary() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let found = exe
        .ancestors()
        .skip(1)
        .map(|d| d.join("tautline"))
        .find(|p| p.is_file());
    match found {
        Some(path) => Ok(path),
        None => {
            bail!("the binary tautline is not built; run cargo test --workspace, or cargo build")
        }
    }
}

/// A server with its ports.
pub struct Server {
    /// The process; a restart replaces it.
    pub process: Process,
    /// The port of `--listen`; 0 for a server with only an admin port.
    pub port: u16,
    /// The port of `--admin`.
    pub admin: u16,
    name: String,
    binary: PathBuf,
    args: Vec<String>,
    dir: PathBuf,
}

impl Server {
    /// Starts `tautline ARGS` with the account of `user` and waits until ready. An argument
    /// `--admin=IP` lets the admin port listen there, and not only on loopback.
    pub async fn start(plane: &ControlPlane, user: &str, args: &[&str]) -> Result<Self> {
        Self::launch(plane, &binary()?, (user, user), free_port()?, args).await
    }

    /// Starts `BINARY ARGS` with the account of `user`, for a binary in another folder.
    pub async fn start_binary(
        plane: &ControlPlane,
        binary: &Path,
        user: &str,
        args: &[&str],
    ) -> Result<Self> {
        Self::start_named(plane, binary, (user, user), args).await
    }

    /// The same with a log called `name`, for one of several servers of that account.
    pub async fn start_named(
        plane: &ControlPlane,
        binary: &Path,
        (user, name): (&str, &str),
        args: &[&str],
    ) -> Result<Self> {
        Self::launch(plane, binary, (user, name), free_port()?, args).await
    }

    /// One of several replicas, with a log called `name` and an address in `--advertise`.
    pub async fn replica(
        plane: &ControlPlane,
        user: &str,
        name: &str,
        args: &[&str],
    ) -> Result<Self> {
        Self::replica_of_binary(plane, &binary()?, (user, name), args).await
    }

    /// The same for a binary in another folder.
    pub async fn replica_of_binary(
        plane: &ControlPlane,
        binary: &Path,
        (user, name): (&str, &str),
        args: &[&str],
    ) -> Result<Self> {
        let port = free_port()?;
        let advertise = format!("--advertise=127.0.0.1:{port}");
        let all: Vec<&str> = args.iter().copied().chain([&*advertise]).collect();
        Self::launch(plane, binary, (user, name), port, &all).await
    }

    /// Starts a controller with a log called `name`, and waits until it is ready. A standby is
    /// ready too, once it has read the cluster.
    pub async fn controller(plane: &ControlPlane, name: &str, args: &[&str]) -> Result<Self> {
        Self::controller_of_binary(plane, &binary()?, name, args).await
    }

    /// The same for a binary in another folder.
    pub async fn controller_of_binary(
        plane: &ControlPlane,
        binary: &Path,
        name: &str,
        args: &[&str],
    ) -> Result<Self> {
        let mut all = vec!["controller"];
        all.extend(args);
        Self::launch(plane, binary, ("controller", name), 0, &all).await
    }

    /// Two controllers, `controller-a` and `controller-b`. The second starts when the first is
    /// ready, so the first leads.
    pub async fn controllers(plane: &ControlPlane, args: &[&str]) -> Result<[Self; 2]> {
        let first = Self::controller(plane, "controller-a", args).await?;
        Ok([first, Self::controller(plane, "controller-b", args).await?])
    }

    /// Starts the dispatcher, and waits until it is ready.
    pub async fn dispatcher(plane: &ControlPlane, args: &[&str]) -> Result<Self> {
        let user = ("dispatcher", "dispatcher");
        let mut all = vec!["dispatch"];
        all.extend(args);
        Self::launch(plane, &binary()?, user, 0, &all).await
    }

    async fn launch(
        plane: &ControlPlane,
        binary: &Path,
        (user, name): (&str, &str),
        port: u16,
        args: &[&str],
    ) -> Result<Self> {
        let admin = free_port()?;
        let address = args.iter().find_map(|arg| arg.strip_prefix("--admin="));
        let address = address.unwrap_or("127.0.0.1");
        let own = args.iter().filter(|arg| !arg.starts_with("--admin="));
        let mut all: Vec<String> = own.map(|arg| (*arg).to_owned()).collect();
        all.extend([
            format!("--kubeconfig={}", plane.kubeconfig(user).display()),
            format!("--admin={address}:{admin}"),
        ]);
        if ["extender", "controller"].contains(&args[0]) {
            // The API server takes no loopback address in an EndpointSlice.
            all.push("--external-name-providers=any".to_owned());
            let trust = "--provider-namespaces";
            if !args.iter().any(|arg| arg.starts_with(trust)) {
                all.push(format!("{trust}=*"));
            }
        }
        if port != 0 {
            all.push(format!("--listen=127.0.0.1:{port}"));
        }
        let dir = plane.dir.path().to_owned();
        let mut server = Self {
            process: Process::start(name, binary, &all, &dir)?,
            port,
            admin,
            name: name.to_owned(),
            binary: binary.to_owned(),
            args: all,
            dir,
        };
        server.ready().await?;
        Ok(server)
    }

    /// The extender over TLS with a new certificate, and the CA's file.
    pub async fn extender(plane: &ControlPlane, args: &[&str]) -> Result<(Self, PathBuf)> {
        let (cert, key) = certificate(plane.dir.path())?;
        let (cert_arg, key_arg) = (
            format!("--tls-cert={}", cert.display()),
            format!("--tls-key={}", key.display()),
        );
        let mut all = vec!["extender", &cert_arg, &key_arg];
        all.extend(args);
        Ok((Self::start(plane, "extender", &all).await?, cert))
    }

    /// The admission server on loopback with a log called `name`; replicas share their
    /// certificates.
    pub async fn admission(plane: &ControlPlane, name: &str, args: &[&str]) -> Result<Self> {
        let mut all = vec!["admission", "--tls-name=127.0.0.1"];
        all.extend(args);
        Self::launch(plane, &binary()?, ("admission", name), free_port()?, &all).await
    }

    /// Starts the same again, on the same ports.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill();
        self.process = Process::start(&self.name, &self.binary, &self.args, &self.dir)?;
        self.ready().await
    }

    async fn ready(&mut self) -> Result<()> {
        let url = format!("http://127.0.0.1:{}/readyz", self.admin);
        let deadline = Instant::now() + READY;
        loop {
            if get(&url).await.is_ok_and(|(status, _)| status == 200) {
                return Ok(());
            }
            let tail = self.process.tail();
            // The log has the reason.
            if let Some(code) = self.process.exit_code() {
                bail!("{} ended with {code}\n{tail}", self.name);
            }
            if Instant::now() > deadline {
                bail!("{} is not ready within {READY:?}\n{tail}", self.name);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A page of the admin port.
    pub async fn admin(&self, path: &str) -> Result<(u16, String)> {
        get(&format!("http://127.0.0.1:{}{path}", self.admin)).await
    }

    /// Waits until the extender plans for pods labelled `app`, and every rule of
    /// the plan passes `check`.
    pub async fn wait_for_rules(&self, namespace: &str, app: &str, check: impl Fn(&Value) -> bool) {
        let all_pass = |plan: &Value| {
            let rules = plan["rules"].as_array();
            rules.is_some_and(|rules| !rules.is_empty() && rules.iter().all(&check))
        };
        self.wait_for_plan(namespace, app, &[], all_pass).await;
    }

    /// Waits until the extender's plan of these nodes for a pod labelled `app`, as
    /// `/explain` shows it, passes `check`.
    pub async fn wait_for_plan(
        &self,
        namespace: &str,
        app: &str,
        nodes: &[&str],
        check: impl Fn(&Value) -> bool,
    ) {
        let name = format!("probe-{app}");
        let condition = async || {
            let body = json!({"Pod": {"metadata": {"name": name, "namespace": namespace,
                              "uid": name, "labels": {"app": app}}}, "NodeNames": nodes});
            let url = format!("https://127.0.0.1:{}/filter", self.port);
            insecure_post(&url, body.to_string().as_bytes())
                .await
                .ok()?;
            let (_, text) = self
                .admin(&format!("/explain/{namespace}/{name}"))
                .await
                .ok()?;
            let records: Value = serde_json::from_str(&text).ok()?;
            check(&records[0]).then_some(())
        };
        let what = format!("the extender's plan for {namespace}/{app} is up to date");
        eventually(&what, PATIENCE, condition, async || {
            let explained = self.admin(&format!("/explain/{namespace}/{name}")).await;
            format!("{explained:?}\n{}", self.process.tail())
        })
        .await;
    }

    /// The value of a metric whose line begins with `name`, summed over labels. The reference must have all metrics.
    pub async fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.admin("/metrics").await.unwrap_or_default();
        let undocumented = metrics_reference::undocumented(&text);
        assert!(
            undocumented.is_empty(),
            "not in docs/reference/metrics.md: {undocumented:#?}"
        );
        let lines = text.lines().filter(|l| l.starts_with(name));
        lines
            .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// The value of a metric once it has stayed the same for a second: a process counts a
    /// call after its effect is visible.
    pub async fn settled_metric(&self, name: &str) -> f64 {
        let mut value = self.metric(name).await;
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_secs(1) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = self.metric(name).await;
            if now != value {
                (value, since) = (now, Instant::now());
            }
        }
        value
    }

    /// Waits until a metric has this value.
    pub async fn wait_for_metric(&self, name: &str, value: f64) {
        let check = async || (self.metric(name).await == value).then_some(());
        eventually(&format!("{name} is {value}"), PATIENCE, check, async || {
            let metrics = self.admin("/metrics").await.unwrap_or_default().1;
            metrics + &self.process.tail()
        })
        .await;
    }
}

/// A self-signed certificate for loopback; it is its own CA.
pub fn certificate(dir: &Path) -> Result<(PathBuf, PathBuf)> {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)?;
    let (cert, key) = (dir.join("extender.crt"), dir.join("extender.key"));
    std::fs::write(&cert, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    Ok((cert, key))
}
