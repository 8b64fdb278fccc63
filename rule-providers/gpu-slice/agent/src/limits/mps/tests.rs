//! The supervisor with a control program that plays the driver's: tests/fake-mps.

use std::{ffi::OsString, fs, os::unix::fs::symlink};

use tautline_gpu_placement::node_inventory::InventoryCard;
use tokio::{task::JoinHandle, time::Instant};

use super::{
    control::Control,
    files::{is_ready, log_dir, pipe_dir},
    *,
};
use crate::{
    limits::{LimitError, smi},
    reader::ReaderCommand,
};

const CARD: &str = "GPU-a";
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the program below the root without a change of root, which needs no privilege.
const HELPER: &str = r#"root=$2; program=$4; shift 4; exec "$root$program" "$@""#;

struct Node {
    directory: tempfile::TempDir,
    config: Config,
    metrics: Metrics,
    readiness: Readiness,
    stop: CancellationToken,
}

fn shell(script: &str) -> ReaderCommand {
    ReaderCommand {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
    }
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("driver");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        let fakes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fake-mps");
        for program in ["nvidia-cuda-mps-control", "nvidia-smi"] {
            symlink(fakes.join(program), root.join("usr/bin").join(program)).unwrap();
        }
        let helper = ["/bin/sh", "-c", HELPER, "helper"].map(OsString::from);
        let short = Duration::from_millis(20);
        let config = Config {
            driver: DriverRoot::with_helper(root, helper.to_vec()),
            run_dir: directory.path().join("run"),
            reader: shell(r#"echo '{"cards":[{"uuid":"GPU-a"}]}'; cat"#),
            exclusive: false,
            largest_share: 1000,
            admin: ([127, 0, 0, 1], 0).into(),
            timing: Timing {
                first_check: short,
                check: short,
                command: PATIENCE,
                quit: PATIENCE,
                restart: short,
                cards: short,
            },
        };
        Self {
            directory,
            config,
            metrics: Metrics::default(),
            readiness: Readiness::default(),
            stop: CancellationToken::new(),
        }
    }

    fn log(&self, file: &str) -> PathBuf {
        let directory = log_dir(&self.config.run_dir, CARD);
        fs::create_dir_all(&directory).unwrap();
        directory.join(file)
    }

    fn record(&self) -> String {
        fs::read_to_string(self.log("record")).unwrap_or_default()
    }

    fn pid(&self) -> Option<u32> {
        let file = pipe_dir(&self.config.run_dir, CARD).join("nvidia-cuda-mps-control.pid");
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    fn control(&self) -> Control {
        let driver = self.config.driver.clone();
        Control::new(driver, &self.config.run_dir, CARD, PATIENCE)
    }

    fn lost(&self) -> u64 {
        self.metrics.of_card(CARD).lost.get()
    }

    fn serve(&self) -> JoinHandle<Result<()>> {
        tokio::spawn(serve(
            self.config.clone(),
            self.metrics.clone(),
            self.readiness.clone(),
            self.stop.clone(),
        ))
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < end, "{what}:\n{}", self.record());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn up(&self) {
        let up = || self.metrics.of_card(CARD).up.get() == 1;
        self.until("the daemon is up", up).await;
        assert_eq!(self.readiness.missing(), [""; 0]);
    }

    async fn end(&self, served: JoinHandle<Result<()>>) {
        self.stop.cancel();
        served.await.unwrap().unwrap();
    }
}

fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn kill(pid: u32) {
    let pid = nix::unistd::Pid::from_raw(pid.try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn daemon_has_its_card_and_quits_at_the_stop() {
    let node = Node::new();
    let pipe = pipe_dir(&node.config.run_dir, CARD);
    fs::create_dir_all(pipe.join("old")).unwrap();
    for stale in ["control", "old/file"] {
        fs::write(pipe.join(stale), "").unwrap();
    }
    let served = node.serve();
    node.up().await;
    let pid = node.pid().unwrap();
    assert!(!pipe.join("old").exists());
    let card = InventoryCard {
        uuid: CARD.to_owned(),
        memory_bytes: 1 << 30,
        ..InventoryCard::default()
    };
    let edits = || ready_edits(&node.config.run_dir, &[(card.clone(), 250)]);
    assert_eq!(edits().map(|edits| edits.mounts.len()), Ok(1));
    node.end(served).await;

    assert!(!alive(pid));
    assert_eq!(edits(), Err(LimitError::NoDaemon(CARD.to_owned())));
    let record = node.record();
    let mut lines = record.lines().map(str::trim);
    let start = format!(
        "start -f -multiuser-server card=GPU-a pipe={} percent= memory=",
        pipe.display()
    );
    assert_eq!(lines.next(), Some(start.as_str()));
    assert_eq!(lines.next(), Some("told get_server_list"));
    assert_eq!(lines.next_back(), Some("told quit"));
    assert_eq!(node.metrics.of_card(CARD).restarts.get(), 0);
    assert_eq!(node.readiness.missing(), ["MPS of card GPU-a"]);
    assert!(!node.directory.path().join("driver/smi.log").exists());
}

#[tokio::test]
async fn daemon_enforces_the_largest_share_and_the_exclusive_mode() {
    let mut node = Node::new();
    node.config.largest_share = 500;
    node.config.exclusive = true;
    let reading = r#"echo '{"cards":[{"uuid":"GPU-a","memoryBytes":85899345920},
        {"uuid":"GPU-mig","mig":[]}]}' | tr -d '\n'; echo; cat"#;
    node.config.reader = shell(reading);
    fs::write(node.log("single-user"), "").unwrap();
    let served = node.serve();
    let told = "told set_default_device_pinned_mem_limit 0 40960M";
    let holds = || node.record().contains(told);
    node.until("the daemon is told its defaults", holds).await;
    node.end(served).await;

    let record = node.record();
    assert!(record.starts_with("start -f card=GPU-a "), "{record}");
    assert!(record.contains(" percent=50 memory=0=40960M\n"), "{record}");
    assert!(
        record.contains("told set_default_active_thread_percentage 50"),
        "{record}"
    );
    assert_eq!(record.matches("told set_default").count(), 2, "{record}");
    let smi = fs::read_to_string(node.directory.path().join("driver/smi.log")).unwrap();
    assert_eq!(smi, "-i GPU-a -c EXCLUSIVE_PROCESS\n-i GPU-a -c DEFAULT\n");
    assert!(!node.config.run_dir.join("mps/GPU-mig").exists());
}

#[tokio::test]
async fn killed_daemon_restarts_and_its_clients_are_lost() {
    let node = Node::new();
    fs::write(node.log("servers"), "77\n78\n").unwrap();
    fs::write(node.log("clients-77"), "5\n6\n").unwrap();
    let served = node.serve();
    let clients = || node.metrics.of_card(CARD).clients.get() == 2;
    node.until("clients are seen", clients).await;
    fs::write(node.log("servers"), "78\n").unwrap();
    node.until("a server is lost", || node.lost() == 2).await;

    fs::write(node.log("clients-78"), "7\n").unwrap();
    let clients = || node.metrics.of_card(CARD).clients.get() == 1;
    node.until("another client is seen", clients).await;
    let first = node.pid().unwrap();
    assert!(is_ready(&node.config.run_dir, CARD));
    kill(first);
    let again = || node.pid().is_some_and(|pid| pid != first);
    node.until("the daemon runs again", again).await;
    node.up().await;
    assert_eq!(node.lost(), 3);
    assert!(node.metrics.of_card(CARD).restarts.get() >= 1);
    node.end(served).await;
}

#[tokio::test]
async fn hanging_daemon_is_killed_and_restarts() {
    let mut node = Node::new();
    node.config.timing.command = Duration::from_millis(300);
    let served = node.serve();
    node.up().await;
    let first = node.pid().unwrap();
    fs::write(node.log("hang"), "").unwrap();
    node.until("the daemon is killed", || !alive(first)).await;
    fs::remove_file(node.log("hang")).unwrap();
    let again = || node.pid().is_some_and(|pid| pid != first);
    node.until("the daemon runs again", again).await;
    let up = || node.metrics.of_card(CARD).up.get() == 1;
    node.until("the daemon is up", up).await;
    node.end(served).await;
}

#[tokio::test]
async fn daemon_that_does_not_quit_is_killed() {
    let mut node = Node::new();
    node.config.timing.quit = Duration::from_millis(300);
    fs::write(node.log("stubborn"), "").unwrap();
    let served = node.serve();
    node.up().await;
    let pid = node.pid().unwrap();
    node.end(served).await;
    assert!(!alive(pid));
}

#[tokio::test]
async fn leftover_daemon_is_ended_first() {
    let node = Node::new();
    fs::create_dir_all(pipe_dir(&node.config.run_dir, CARD)).unwrap();
    fs::create_dir_all(log_dir(&node.config.run_dir, CARD)).unwrap();
    let mut leftover = node.control().daemon(None).unwrap().spawn().unwrap();
    node.until("the leftover runs", || node.pid().is_some())
        .await;
    let served = node.serve();
    assert!(leftover.wait().await.unwrap().success());
    node.up().await;
    assert!(node.record().contains("told quit"));
    node.end(served).await;
}

#[tokio::test]
async fn ended_daemon_has_no_servers() {
    let node = Node::new();
    let served = node.serve();
    node.up().await;
    let control = node.control();
    assert_eq!(control.servers().await.unwrap(), []);
    node.end(served).await;
    let error = control.servers().await.unwrap_err().to_string();
    assert!(
        error.ends_with("failed: Cannot find MPS control daemon process"),
        "{error}"
    );
}

#[tokio::test]
async fn node_without_driver_idles() {
    let mut node = Node::new();
    let script = "echo 'no driver' >&2; echo look >> $0; exit 3";
    let looks = node.directory.path().join("looks");
    node.config.reader = shell(script);
    node.config.reader.arguments.push(looks.clone().into());
    let served = node.serve();
    let twice = || fs::read_to_string(&looks).is_ok_and(|text| text.len() >= 10);
    node.until("cards are looked for again", twice).await;
    assert_eq!(node.readiness.missing(), [""; 0]);
    node.end(served).await;
}

#[tokio::test]
async fn missing_program_is_named() {
    let node = Node::new();
    let empty = DriverRoot::with_helper(node.directory.path(), Vec::new());
    let control = Control::new(empty, &node.config.run_dir, CARD, PATIENCE);
    let error = control.servers().await.unwrap_err().to_string();
    assert!(
        error.starts_with("nvidia-cuda-mps-control is not below /"),
        "{error}"
    );
    assert!(error.contains("set --driver-root to"), "{error}");
}

#[tokio::test]
async fn timeslice_is_set_by_card() {
    let node = Node::new();
    let driver = &node.config.driver;
    for (card, slice) in [("GPU-a", "short"), ("GPU-b", "default")] {
        let slice: smi::Timeslice = slice.parse().unwrap();
        smi::set_timeslice(driver, card, slice).await.unwrap();
    }
    let smi = fs::read_to_string(node.directory.path().join("driver/smi.log")).unwrap();
    assert_eq!(
        smi,
        "compute-policy -i GPU-a --set-timeslice 1\ncompute-policy -i GPU-b --set-timeslice 0\n"
    );
    let slice = "long".parse().unwrap();
    let error = smi::set_timeslice(driver, "bad", slice).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "nvidia-smi compute-policy -i bad --set-timeslice 3 failed: No devices were found"
    );
}
