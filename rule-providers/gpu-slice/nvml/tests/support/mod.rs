//! The real binary on the fake NVML.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tautline_nvml::{Action, Card, Command as Order, Outcome, Reading, Reply};

/// Time for what must happen; a busy machine is slow.
const DEADLINE: Duration = Duration::from_secs(60);
const FAKE: &str = "tautline-fake-nvml";

/// The fake library, which Cargo does not build for tests of other crates.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_tautline-nvml"))
            .parent()
            .unwrap();
        let library = folder.join("libtautline_fake_nvml.so");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fake-nvml");
        let modified = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
        let sources = std::fs::read_dir(root.join("src")).unwrap();
        let newest = sources
            .filter_map(|file| modified(&file.unwrap().path()))
            .max();
        if modified(&library) < newest.or(Some(SystemTime::UNIX_EPOCH)) {
            let mut build = Command::new(env!("CARGO"));
            build
                .args(["build", "--quiet", "-p", FAKE])
                .current_dir(root);
            if folder.ends_with("release") {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success(), "{FAKE} does not build");
        }
        assert!(library.is_file(), "{} is missing", library.display());
        library
    })
}

/// The file of the fake NVML.
pub struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    pub fn new(scene: &Value) -> Self {
        let new = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        new.play(scene);
        new
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("scene.json")
    }

    /// Replaces the file.
    pub fn play(&self, scene: &Value) {
        let next = self.folder.path().join("next.json");
        std::fs::write(&next, scene.to_string()).unwrap();
        std::fs::rename(next, self.path()).unwrap();
    }
}

/// A reader and its lines.
pub struct Reader {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Reading>,
    replies: Receiver<Reply>,
}

impl Reader {
    pub fn start(scene: &Path, interval: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tautline-nvml"))
            .arg("--library")
            .arg(library())
            .args(["--interval", interval])
            .env("FAKE_NVML_FILE", scene)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        let (replying, replies) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.unwrap();
                if line.as_bytes().starts_with(Reply::PREFIX) {
                    let _ = replying.send(serde_json::from_str(&line).unwrap());
                    continue;
                }
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            lines,
            replies,
        }
    }

    /// What a command leads to.
    pub fn order(&mut self, action: Action) -> Outcome {
        let order = Order { id: 7, action };
        let line = serde_json::to_string(&order).unwrap() + "\n";
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
        let reply = self.replies.recv_timeout(DEADLINE).unwrap();
        assert_eq!(reply.id, 7);
        reply.outcome
    }

    /// The first reading for which `is_wanted` holds.
    pub fn until(&self, what: &str, is_wanted: impl Fn(&Reading) -> bool) -> Reading {
        let end = Instant::now() + DEADLINE;
        let mut last = None;
        while let Some(rest) = end.checked_duration_since(Instant::now()) {
            match self.lines.recv_timeout(rest) {
                Ok(reading) if is_wanted(&reading) => return reading,
                Ok(reading) => last = Some(reading),
                Err(_) => break,
            }
        }
        panic!("no reading with {what}; the last one: {last:#?}");
    }

    pub fn first(&self) -> Reading {
        self.until("anything", |_| true)
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end: exit status and stderr.
    pub fn end(&mut self) -> (ExitStatus, String) {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut text = String::new();
                self.child
                    .stderr
                    .take()
                    .unwrap()
                    .read_to_string(&mut text)
                    .unwrap();
                return (status, text);
            }
            assert!(Instant::now() < end, "the reader does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fault of the card with an index.
pub fn fault(reading: &Reading, index: usize) -> Option<&str> {
    reading
        .cards
        .get(index)
        .and_then(|card: &Card| card.fault.as_deref())
}
