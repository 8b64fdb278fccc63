//! The agent's commands, a line of stdin each. They run beside the readings.

use std::io::{BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nvml_wrapper::Nvml;
use tautline_nvml::{Command, Reply};

use crate::mig;
use crate::raw::exit_now;
use crate::watchdog::{Watchdog, write};

/// Time for a command: the driver needs a second for an instance.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest line.
const MAX_LINE: u64 = 1 << 16;

/// Lines of stdin, whose end ends the process, even in a call that hangs.
pub fn read_stdin() -> std::io::Result<Receiver<Command>> {
    let (sender, commands) = channel();
    thread::Builder::new().name("stdin".into()).spawn(move || {
        read_lines(&sender);
        exit_now(0);
    })?;
    Ok(commands)
}

fn read_lines(sender: &Sender<Command>) {
    let mut stdin = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        match (&mut stdin).take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match serde_json::from_slice(&line) {
            // Nobody acts on it before NVML has started, or after it failed.
            Ok(command) => _ = sender.send(command),
            Err(error) => eprintln!("a line of stdin is no command: {error}"),
        }
    }
}

/// Acts on commands. `stale` is set when MIG instances may have changed.
pub fn serve(
    nvml: Arc<Nvml>,
    commands: Receiver<Command>,
    stale: Arc<AtomicBool>,
) -> std::io::Result<()> {
    // One of its own: a command may hang beside a reading that does not.
    let watchdog = Watchdog::start()?;
    let serve = move || {
        for command in commands {
            let outcome = watchdog.guard("a MIG command", None, LIMIT, || {
                mig::act(&nvml, &command.action)
            });
            stale.store(true, Ordering::Release);
            let id = command.id;
            if write(&Reply { id, outcome }).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("commands".into())
        .spawn(serve)?;
    Ok(())
}
