//! Finds the cards that get a daemon. The list is final, since cards come and go only with the
//! driver.

use std::time::Duration;

use tautline_nvml::{Card, Reading};
use tokio::process::Command;

use super::Config;
use crate::{
    limits::driver_root::{DriverError, run},
    reader::ReaderCommand,
};

/// The time in which a reading must arrive; NVML takes seconds on a node with many cards without
/// the persistence daemon.
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until the node has cards, and returns those that are not in MIG mode.
pub(super) async fn find(config: &Config) -> Vec<Card> {
    let mut last = String::new();
    loop {
        let fault = match read(&config.reader).await {
            Ok(cards) if cards.is_empty() => "the node has no cards without MIG".to_owned(),
            Ok(cards) => return cards,
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

async fn read(reader: &ReaderCommand) -> Result<Vec<Card>, DriverError> {
    let mut command = Command::new(&reader.program);
    command.args(&reader.arguments).arg("--once");
    command.kill_on_drop(true);
    let name = reader.program.display().to_string();
    let text = run(&name, command, "", DEADLINE).await?;
    let reading: Reading = serde_json::from_str(&text)
        .map_err(|e| DriverError::Failed(name, format!("its output is not a reading: {e}")))?;
    let mut cards = reading.cards;
    cards.retain(|card| {
        if card.mig.is_some() {
            tracing::info!(card = card.uuid, "no MPS daemon: the card is in MIG mode");
        }
        card.mig.is_none()
    });
    Ok(cards)
}
