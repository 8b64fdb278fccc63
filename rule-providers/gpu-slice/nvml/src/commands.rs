//! Reads the agent's commands, one per line of stdin, and runs them while the readings go on.

use std::io::{BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nvml_wrapper::Nvml;
use tautline_nvml::{Command, Reply};

use crate::mig;
use crate::raw::exit_now;
use crate::watchdog::{Watchdog, write};

/// The time in which a command must end; the driver needs a second for an instance.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// The longest line of stdin that is read, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 16;

/// Starts a thread that reads commands from stdin. The end of stdin ends the process, even while a
/// call of NVML hangs.
pub fn read_stdin() -> std::io::Result<Receiver<Command>> {
    let (sender, commands) = channel();
    let read = move || {
        let (mut stdin, mut line) = (std::io::stdin().lock(), Vec::new());
        while let Ok(1..) = (&mut stdin)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
        {
            match serde_json::from_slice(&line) {
                // Before NVML has started, and after it has failed, no thread runs the command.
                Ok(command) => _ = sender.send(command),
                Err(error) => eprintln!("a line of stdin is no command: {error}"),
            }
            line.clear();
        }
        exit_now(0);
    };
    thread::Builder::new().name("stdin".into()).spawn(read)?;
    Ok(commands)
}

/// Starts a thread that runs the commands. It sets `stale` when MIG instances may have changed.
pub fn serve(
    nvml: Arc<Nvml>,
    commands: Receiver<Command>,
    stale: Arc<AtomicBool>,
) -> std::io::Result<()> {
    // The readings have another watchdog: a command may hang while a reading does not.
    let watchdog = Watchdog::start()?;
    let serve = move || {
        for command in commands {
            let outcome = watchdog.guard("a MIG command", None, COMMAND_LIMIT, || {
                mig::act(&nvml, &command.action)
            });
            stale.store(true, Ordering::Release);
            let id = command.id;
            if write(&Reply { id, outcome }).is_err() {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("commands".into());
    thread.spawn(serve)?;
    Ok(())
}
