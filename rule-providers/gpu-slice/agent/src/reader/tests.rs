use std::time::Duration;

use tautline_nvml::{Action, MigDestroy, MigSlot, Outcome};
use tokio::task::JoinHandle;

use super::*;

/// A reader that is a shell script.
struct Script {
    folder: tempfile::TempDir,
}

impl Script {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `script`, in which `$1` is the folder.
    fn start(&self, script: &str) -> Running {
        self.start_with(script, |_| {})
    }

    fn start_with(&self, script: &str, change: impl FnOnce(&mut ReaderLimits)) -> Running {
        self.start_called(script, change).0
    }

    fn start_called(
        &self,
        script: &str,
        change: impl FnOnce(&mut ReaderLimits),
    ) -> (Running, ReaderCalls) {
        let folder = self.folder.path();
        let arguments = vec!["-c".into(), script.into(), "sh".into(), folder.into()];
        self.start_command("sh".into(), arguments, change)
    }

    fn start_command(
        &self,
        program: PathBuf,
        arguments: Vec<OsString>,
        change: impl FnOnce(&mut ReaderLimits),
    ) -> (Running, ReaderCalls) {
        let mut limits = ReaderLimits {
            start: Duration::from_secs(60),
            silence: Duration::from_secs(30),
            first_pause: Duration::from_millis(10),
            no_driver_pause: Duration::from_millis(100),
            stale_after: Duration::from_secs(3600),
        };
        change(&mut limits);
        let command = ReaderCommand { program, arguments };
        let (sender, receiver) = watch::channel(Snapshot::default());
        let (calls, called) = ReaderCalls::new();
        let running = Running {
            task: tokio::spawn(run(command, limits, sender, called)),
            receiver,
        };
        (running, calls)
    }
}

struct Running {
    task: JoinHandle<()>,
    receiver: watch::Receiver<Snapshot>,
}

impl Running {
    async fn until(&mut self, what: &str, is_wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let wanted = self.receiver.wait_for(|now| is_wanted(now));
        if let Ok(found) = timeout(Duration::from_secs(60), wanted).await {
            return found.unwrap().clone();
        }
        panic!("no snapshot with {what}: {:#?}", self.receiver.borrow());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn faults(snapshot: &Snapshot) -> Vec<(String, Option<String>)> {
    let cards = snapshot.reading.iter().flat_map(|reading| &reading.cards);
    cards
        .map(|card| (card.uuid.clone(), card.fault.clone()))
        .collect()
}

const A_READS: &str = r#"echo '{"cards":[{"uuid":"a"}]}'; read end"#;

#[tokio::test]
async fn readings_are_passed_on() {
    let script = Script::new();
    let mut running = script.start(A_READS);
    let snapshot = running
        .until("a reading", |now| now.reading.is_some())
        .await;
    assert_eq!(faults(&snapshot), [("a".into(), None)]);
    assert_eq!(
        (snapshot.state, snapshot.restarts),
        (ReaderState::Reading, 0)
    );
}

#[tokio::test]
async fn a_silent_reader_is_killed_and_started_again() {
    let script = Script::new();
    let silent = r#"
        echo x >> "$1/starts"
        [ "$(wc -l < "$1/starts")" = 1 ] || { echo '{"cards":[{"uuid":"b"}]}'; read end; }
        echo '{"cards":[{"uuid":"a"}]}'; echo $$ > "$1/pid"; exec sleep 1000"#;
    let mut running =
        script.start_with(silent, |limits| limits.silence = Duration::from_millis(200));
    let failing =
        |now: &Snapshot| matches!(&now.state, ReaderState::Failing(why) if why.contains("silent"));
    let first = running.until("silence", failing).await;
    assert_eq!(faults(&first), [("a".into(), None)]);
    let second = running
        .until("the card b", |now| faults(now).len() == 2)
        .await;
    assert!(second.restarts >= 1);
    assert_eq!(
        faults(&second),
        [("b".into(), None), ("a".into(), Some("Gone".into()))]
    );
    let pid = std::fs::read_to_string(script.file("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists());
}

#[tokio::test]
async fn no_driver_is_told_apart() {
    let script = Script::new();
    let mut running = script.start("echo 'no NVIDIA driver: x' >&2; exit 3");
    let snapshot = running
        .until("no driver, twice", |now| {
            now.restarts > 0 && now.state == ReaderState::NoDriver("no NVIDIA driver: x".into())
        })
        .await;
    assert!(snapshot.reading.is_none());
}

#[tokio::test]
async fn cards_stay_listed_when_the_driver_is_unloaded() {
    let script = Script::new();
    let unloaded = r#"
        [ -e "$1/unloaded" ] && exit 3
        echo '{"cards":[{"uuid":"a"}]}'; touch "$1/unloaded"; exit 1"#;
    let mut running = script.start(unloaded);
    let snapshot = running
        .until("no driver", |now| {
            matches!(now.state, ReaderState::NoDriver(_))
        })
        .await;
    assert_eq!(faults(&snapshot), [("a".into(), Some("NoDriver".into()))]);
}

#[tokio::test]
async fn the_last_message_says_why_it_failed() {
    let script = Script::new();
    let mut running = script.start("echo first >&2; echo 'NVML hangs' >&2; exit 4");
    running
        .until("the message", |now| {
            now.state == ReaderState::Failing("NVML hangs".into())
        })
        .await;
}

#[tokio::test]
async fn a_wrong_line_is_a_failure() {
    let script = Script::new();
    let mut running = script.start("echo nonsense; read end");
    running
        .until(
            "the failure",
            |now| matches!(&now.state, ReaderState::Failing(why) if why.contains("not a reading")),
        )
        .await;
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let script = Script::new();
    let missing = script.file("missing");
    let (mut running, _) = script.start_command(missing, Vec::new(), |_| {});
    running
        .until("the failure", |now| {
            matches!(&now.state, ReaderState::Failing(why) if why.contains("missing does not start"))
        })
        .await;
}

#[tokio::test]
async fn cards_count_as_faulty_when_the_last_reading_is_old() {
    let script = Script::new();
    let mut running = script.start_with(A_READS, |limits| {
        limits.stale_after = Duration::from_millis(100)
    });
    let snapshot = running
        .until("the fault", |now| {
            faults(now).iter().any(|(_, fault)| fault.is_some())
        })
        .await;
    assert_eq!(faults(&snapshot), [("a".into(), Some("Unreadable".into()))]);
}

#[tokio::test]
async fn the_reader_ends_with_the_future() {
    let script = Script::new();
    let mut running = script.start(&format!(
        r#"echo $$ > "$1/pid"; {A_READS}; exec sleep 1000"#
    ));
    running
        .until("a reading", |now| now.reading.is_some())
        .await;
    let pid = std::fs::read_to_string(script.file("pid")).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    assert!(process.exists());
    running.task.abort();
    let end = Instant::now() + Duration::from_secs(60);
    while process.exists() {
        assert!(Instant::now() < end, "the reader still runs");
        sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn the_program_is_beside_the_agent() {
    let command = ReaderCommand::new(Path::new("/host"), Some(Path::new("/x.so"))).unwrap();
    assert_eq!(command.program.file_name().unwrap(), PROGRAM);
    assert_eq!(
        command.arguments,
        ["--driver-root", "/host", "--library", "/x.so"]
    );
    let command = ReaderCommand::new(Path::new("/"), None).unwrap();
    assert_eq!(command.arguments.len(), 2);
}

#[tokio::test]
async fn commands_are_answered_between_readings_and_not_by_a_reader_that_ended() {
    let script = Script::new();
    let answers = r#"
        echo '{"cards":[{"uuid":"a"}]}'
        read -r first; echo "$first" > "$1/first"
        echo '{"id":9,"error":"of nobody"}'
        echo '{"cards":[{"uuid":"b"}]}'
        echo '{"id":1,"error":"the card is busy"}'
        read -r second; exit 1"#;
    let (mut running, calls) = script.start_called(answers, |limits| {
        limits.no_driver_pause = Duration::from_secs(60);
        limits.first_pause = Duration::from_secs(60);
    });
    let destroy = || {
        let slot = MigSlot {
            card: "a".into(),
            profile: "1g.10gb".into(),
            start: 3,
        };
        Action::Destroy(MigDestroy {
            slot,
            gpu_instance: 7,
        })
    };
    let answer = calls.ask(destroy()).await;
    assert_eq!(answer, Outcome::Error("the card is busy".into()));
    assert_eq!(
        std::fs::read_to_string(script.file("first")).unwrap(),
        "{\"id\":1,\"destroy\":{\"card\":\"a\",\"profile\":\"1g.10gb\",\"start\":3,\"gpuInstance\":7}}\n"
    );
    running.until("card b", |now| faults(now).len() == 2).await;
    let lost = calls.ask(destroy()).await;
    let expected = "the reader of GPUs ended meanwhile";
    assert_eq!(lost, Outcome::Error(expected.into()));
}
