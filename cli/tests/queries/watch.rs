//! A running watch: its lines, a lost connection, its end.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use serde_json::json;

use crate::{
    api_server::{Answer, ApiServer},
    binding, bindings, command, refusal,
};

/// A running `watch`, and the lines of its two outputs, in no defined order.
struct Watching {
    child: Child,
    out: mpsc::Receiver<String>,
    err: mpsc::Receiver<String>,
}

impl Watching {
    fn start(server: &ApiServer) -> Self {
        let mut child = command(&server.kubeconfig, &["watch"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = |from: Box<dyn std::io::Read + Send>| {
            let (sender, lines) = mpsc::channel();
            std::thread::spawn(move || {
                for line in BufReader::new(from).lines() {
                    _ = sender.send(line.unwrap());
                }
            });
            lines
        };
        let out = lines(Box::new(child.stdout.take().unwrap()));
        let err = lines(Box::new(child.stderr.take().unwrap()));
        Self { child, out, err }
    }

    fn says(&self, part: &str) {
        expect(&self.out, part);
    }

    fn notes(&self, part: &str) {
        expect(&self.err, part);
    }
}

fn expect(lines: &mpsc::Receiver<String>, part: &str) {
    let mut seen = Vec::new();
    while let Ok(line) = lines.recv_timeout(Duration::from_secs(20)) {
        if line.contains(part) {
            return;
        }
        seen.push(line);
    }
    panic!("{part:?} was not printed, but {seen:?}");
}

impl Drop for Watching {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn watch_prints_changes_reconnects_and_ends_on_a_signal() {
    let change = |compliance: &str| {
        let object = binding("a-1", compliance);
        json!({"type": "MODIFIED", "object": object}).to_string() + "\n"
    };
    let lists = AtomicUsize::new(0);
    let server = ApiServer::start(move |path| {
        if path.contains("watch=") {
            // The first watch breaks off: its resourceVersion is gone.
            return match lists.load(Ordering::SeqCst) {
                2 if path.contains("resourceVersion=9") => Answer::text(200, &change("Violation")),
                2 => refusal(500, "InternalError", "no longer", None),
                _ => Answer::watch(&change("Limit")),
            };
        }
        // One list for the check, then one for each watch; the second fails.
        match lists.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => bindings(&[binding("a-1", "Compliant")], ""),
            2 => refusal(500, "InternalError", "starting", None),
            _ => bindings(&[binding("a-1", "Error")], ""),
        }
    });
    let mut watching = Watching::start(&server);
    watching.notes("namespace shop, bindings: 1 (1 Compliant)");
    watching.says("shop/a-1 Compliant -> Violation because");
    watching.notes("connection lost: no longer; trying again");
    watching.notes("connection lost: starting; trying again");
    watching.says("shop/a-1 Violation -> Error because");
    watching.says("shop/a-1 Error -> Limit because");
    let pid = watching.child.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(killed.success());
    assert_eq!(watching.child.wait().unwrap().code(), Some(0));
}
