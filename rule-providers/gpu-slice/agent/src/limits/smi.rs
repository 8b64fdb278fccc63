//! Changes settings of cards with `nvidia-smi`, since NVML has no public call for time slices.

use std::{collections::BTreeSet, str::FromStr, sync::Arc, time::Duration};

use tautline_gpu_placement::node_inventory::NodeInventory;
use tokio::{sync::watch, time};

use super::{
    Mode,
    driver_root::{DriverError, DriverRoot, run},
};

const PROGRAM: &str = "nvidia-smi";
/// The time in which the program must end; it takes seconds on a node with many cards without the
/// persistence daemon.
const DEADLINE: Duration = Duration::from_secs(30);
/// The pause before cards are tried again whose time slices could not be set.
const RETRY_PAUSE: Duration = Duration::from_secs(60);
/// The lengths of time slices; `nvidia-smi` takes the position.
const LENGTHS: [&str; 4] = ["default", "short", "medium", "long"];

/// The length of a card's time slices: the driver's default, or short, medium or long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeslice(usize);

/// The error for a text that is not a [`Timeslice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time slice {0:?} is unknown; write default, short, medium or long")]
pub struct TimesliceError(String);

impl FromStr for Timeslice {
    type Err = TimesliceError;

    fn from_str(text: &str) -> Result<Self, TimesliceError> {
        let number = LENGTHS.iter().position(|length| *length == text);
        number
            .map(Self)
            .ok_or_else(|| TimesliceError(text.to_owned()))
    }
}

/// Sets the length of a card's time slices, which lasts until the driver is loaded again.
pub(super) async fn set_timeslice(
    driver: &DriverRoot,
    card: &str,
    slice: Timeslice,
) -> Result<(), DriverError> {
    let number = slice.0.to_string();
    let arguments = ["compute-policy", "-i", card, "--set-timeslice", &number];
    smi(driver, &arguments).await
}

/// Sets whether only one process may use a card: the MPS server, if it runs. The setting lasts
/// until the driver is loaded again.
pub(super) async fn set_exclusive(
    driver: &DriverRoot,
    card: &str,
    exclusive: bool,
) -> Result<(), DriverError> {
    let mode = if exclusive {
        "EXCLUSIVE_PROCESS"
    } else {
        "DEFAULT"
    };
    smi(driver, &["-i", card, "-c", mode]).await
}

async fn smi(driver: &DriverRoot, arguments: &[&str]) -> Result<(), DriverError> {
    let mut command = driver.command(PROGRAM)?;
    command.args(arguments);
    let name = format!("{PROGRAM} {}", arguments.join(" "));
    run(&name, command, "", DEADLINE).await.map(drop)
}

/// Sets the cards' time slices while the node's mode is `timeslice`.
pub(crate) async fn follow(
    driver: DriverRoot,
    slice: Timeslice,
    inventory: watch::Receiver<Arc<NodeInventory>>,
    mode: watch::Receiver<Mode>,
) {
    let driver = &driver;
    let set = |card: String| async move { set_timeslice(driver, &card, slice).await };
    follow_with(set, inventory, mode).await;
}

async fn follow_with<F: Future<Output = Result<(), DriverError>>>(
    set: impl Fn(String) -> F,
    mut inventory: watch::Receiver<Arc<NodeInventory>>,
    mut mode: watch::Receiver<Mode>,
) {
    let mut done = BTreeSet::new();
    loop {
        let sound = match *mode.borrow_and_update() {
            Mode::Timeslice => sound(&inventory.borrow_and_update()),
            _ => BTreeSet::new(),
        };
        // A card that comes back has the driver's default time slices.
        done.retain(|card| sound.contains(card));
        let mut failed = false;
        for card in sound {
            if done.contains(&card) {
                continue;
            }
            match set(card.clone()).await {
                Ok(()) => _ = done.insert(card),
                Err(error) => {
                    tracing::warn!(card, %error, "the card keeps its time slices");
                    failed = true;
                }
            }
        }
        let more = tokio::select! {
            changed = inventory.changed(), if !failed => changed,
            changed = mode.changed() => changed,
            () = time::sleep(RETRY_PAUSE), if failed => Ok(()),
        };
        if more.is_err() {
            return;
        }
    }
}

fn sound(inventory: &NodeInventory) -> BTreeSet<String> {
    let cards = inventory.cards.iter();
    let sound = cards.filter(|card| card.fault.is_none());
    sound.map(|card| card.uuid.clone()).collect()
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tautline_gpu_placement::node_inventory::InventoryCard;

    use super::*;

    fn node(cards: &[&str]) -> Arc<NodeInventory> {
        let card = |uuid: &&str| InventoryCard {
            uuid: (*uuid).to_owned(),
            ..InventoryCard::default()
        };
        Arc::new(NodeInventory {
            cards: cards.iter().map(card).collect(),
            ..NodeInventory::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_card_is_tried_until_it_is_set_and_again_when_it_comes_back() {
        let tried = Mutex::new(Vec::new());
        let set = |card: String| {
            let mut tried = tried.lock();
            tried.push(card);
            let first = tried.len() == 1;
            async move {
                if first {
                    return Err(DriverError::Failed("nvidia-smi".into(), "busy".into()));
                }
                Ok(())
            }
        };
        let (inventory, inventories) = watch::channel(node(&["a"]));
        let (mode, modes) = watch::channel(Mode::None);
        let steps = async {
            let settle = || time::sleep(RETRY_PAUSE * 3);
            settle().await;
            assert!(tried.lock().is_empty());
            mode.send_replace(Mode::Timeslice);
            settle().await;
            assert_eq!(*tried.lock(), ["a", "a"]);
            inventory.send_replace(node(&["a", "b"]));
            settle().await;
            inventory.send_replace(node(&["b"]));
            settle().await;
            inventory.send_replace(node(&["a", "b"]));
            settle().await;
            assert_eq!(*tried.lock(), ["a", "a", "b", "a"]);
            drop(inventory);
        };
        tokio::join!(follow_with(set, inventories, modes), steps);
    }
}
