//! Finds the cards that get a daemon. The list is final, since cards come and go only with the
//! driver.

use std::{ffi::OsString, io, path::PathBuf, process::Stdio, time::Duration};

use tautline_nvml::Reading;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
    time::timeout,
};

use super::Config;

/// The time in which a reading must arrive; NVML takes seconds on a node with many cards without
/// the persistence daemon.
const DEADLINE: Duration = Duration::from_secs(60);
/// The largest reading, in bytes; a reading of 8 cards has some 10 KiB.
const MAX_READING_BYTES: u64 = 4 << 20;

/// A card that gets a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The UUID, such as `GPU-dc045714-f1e3-e4f0-b27a-21fc860293fe`.
    pub uuid: String,
    /// The memory in bytes; `None` if it is not known.
    pub memory_bytes: Option<u64>,
}

/// The source of the list of cards.
#[derive(Clone, Debug)]
pub enum CardSource {
    /// The cards with these UUIDs are used.
    Listed(Vec<String>),
    /// NVML lists the node's cards; all that are not in MIG mode are used.
    Nvml(NvmlReader),
}

/// The command that runs the program `tautline-nvml`.
#[derive(Clone, Debug)]
pub struct NvmlReader {
    /// The path of the program; `None` means the one next to this process's executable.
    pub program: Option<PathBuf>,
    /// The arguments of the program, such as `--driver-root /host`.
    pub arguments: Vec<OsString>,
}

/// Waits until the node has cards, and returns them.
pub(super) async fn find(config: &Config) -> Vec<Card> {
    let reader = match &config.cards {
        CardSource::Listed(uuids) => return uuids.iter().map(|uuid| Card::listed(uuid)).collect(),
        CardSource::Nvml(reader) => reader,
    };
    let mut last = String::new();
    loop {
        let fault = match reader.read().await {
            Ok(reading) => match usable(reading) {
                cards if cards.is_empty() => "the node has no cards without MIG".to_owned(),
                cards => return cards,
            },
            Err(e) => format!("no cards are known: {e}"),
        };
        if fault != last {
            tracing::info!(
                "{fault}; idle, looking again every {:?}",
                config.timing.cards
            );
            last = fault;
        }
        tokio::time::sleep(config.timing.cards).await;
    }
}

impl Card {
    fn listed(uuid: &str) -> Self {
        Self {
            uuid: uuid.to_owned(),
            memory_bytes: None,
        }
    }
}

fn usable(reading: Reading) -> Vec<Card> {
    let cards = reading.cards.into_iter().filter(|card| {
        if card.mig.is_some() {
            tracing::info!(card = card.uuid, "no MPS daemon: the card is in MIG mode");
        }
        card.mig.is_none()
    });
    let usable = cards.map(|card| Card {
        uuid: card.uuid,
        memory_bytes: Some(card.memory_bytes),
    });
    usable.collect()
}

impl NvmlReader {
    async fn read(&self) -> io::Result<Reading> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("tautline-nvml"),
        };
        let mut command = Command::new(&program);
        command.args(&self.arguments).kill_on_drop(true);
        // The program ends when its standard input closes.
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", program.display())))?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let read = async {
            let mut line = String::new();
            if let Some(output) = output {
                BufReader::new(output.take(MAX_READING_BYTES))
                    .read_line(&mut line)
                    .await?;
            }
            if let Ok(reading) = serde_json::from_str(&line) {
                return Ok(reading);
            }
            drop(child.stdin.take());
            let mut why = String::new();
            if let Some(errors) = errors {
                errors.take(1000).read_to_string(&mut why).await?;
            }
            let why = why.lines().next().unwrap_or("it ended without a reading");
            Err(io::Error::other(format!("{}: {why}", program.display())))
        };
        match timeout(DEADLINE, read).await {
            Ok(result) => result,
            Err(_) => Err(io::Error::other(format!(
                "{} gave no reading in {DEADLINE:?}",
                program.display()
            ))),
        }
    }
}
