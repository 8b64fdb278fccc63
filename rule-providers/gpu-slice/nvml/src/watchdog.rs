//! Guards calls to NVML: if one exceeds its time limit, the watchdog reports the card as
//! unresponsive and ends the process.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tautline_nvml::Reading;

use crate::raw::exit_now;

/// The exit status after a call that hangs.
const EXIT_HANGS: i32 = 4;
/// The interval at which the deadline of a call is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Ends the process when a call of NVML hangs, after writing a last reading in which the card is
/// faulty.
#[derive(Clone, Default)]
pub struct Watchdog {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    call: Option<Call>,
    last: Reading,
}

struct Call {
    what: String,
    /// The UUID of the card, if the call concerns only one.
    card: Option<String>,
    until: Instant,
}

impl Watchdog {
    /// Starts a thread that watches the calls.
    pub fn start() -> std::io::Result<Self> {
        let watchdog = Self::default();
        let watching = watchdog.clone();
        let watch = move || {
            loop {
                thread::sleep(CHECK_INTERVAL);
                watching.check(Instant::now());
            }
        };
        let thread = thread::Builder::new().name("watchdog".into());
        thread.spawn(watch)?;
        Ok(watchdog)
    }

    /// Runs calls of NVML; the process ends if they take longer than `limit`.
    pub fn guard<T>(
        &self,
        what: &str,
        card: Option<&str>,
        limit: Duration,
        calls: impl FnOnce() -> T,
    ) -> T {
        let call = Call {
            what: what.to_owned(),
            card: card.map(str::to_owned),
            until: Instant::now() + limit,
        };
        self.lock().call = Some(call);
        let value = calls();
        self.lock().call = None;
        value
    }

    /// Writes a reading and remembers it as the last one.
    pub fn write(&self, reading: Reading) -> std::io::Result<()> {
        write(&reading)?;
        self.lock().last = reading;
        Ok(())
    }

    fn check(&self, now: Instant) {
        let state = self.lock();
        let Some(call) = state.call.as_ref().filter(|call| call.until <= now) else {
            return;
        };
        let mut of_card = String::new();
        if let Some(card) = &call.card {
            // If the agent no longer reads, the exit status has to suffice.
            let _ = unresponsive(&state.last, card).map(|last| write(&last));
            of_card = format!(" of card {card}");
        }
        eprintln!("NVML hangs: {}{of_card}", call.what);
        exit_now(EXIT_HANGS);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a line to stdout; the lines of several threads do not mix.
pub fn write(line: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

/// Returns the last reading with the card marked as unresponsive; `None` if the card was never
/// read.
fn unresponsive(last: &Reading, card: &str) -> Option<Reading> {
    let mut reading = last.clone();
    let mut cards = reading.cards.iter_mut();
    cards.find(|listed| listed.uuid == card)?.fault = Some("Unresponsive".into());
    Some(reading)
}

#[cfg(test)]
mod tests {
    use tautline_nvml::Card;

    use super::*;

    #[test]
    fn the_card_that_hangs_is_faulty_in_the_last_reading() {
        let card = |uuid: &str| Card {
            uuid: uuid.into(),
            ..Card::default()
        };
        let last = Reading {
            cards: vec![card("a"), card("b")],
            ..Reading::default()
        };
        let reading = unresponsive(&last, "b").unwrap();
        assert_eq!(reading.cards[0].fault, None);
        assert_eq!(reading.cards[1].fault.as_deref(), Some("Unresponsive"));
        assert_eq!(unresponsive(&last, "c"), None);
        assert_eq!(unresponsive(&Reading::default(), "a"), None);
    }

    #[test]
    fn calls_in_time_pass() {
        let watchdog = Watchdog::default();
        let long = Duration::from_secs(3600);
        assert_eq!(watchdog.guard("a call", None, long, || 7), 7);
        watchdog.check(Instant::now() + 2 * long);
        watchdog.guard("a call", None, long, || watchdog.check(Instant::now()));
    }
}
