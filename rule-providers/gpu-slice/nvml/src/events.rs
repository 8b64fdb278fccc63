use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};

use crate::card::Seen;
use crate::raw;

/// The shortest pause between two readings, however many events arrive.
const MIN_PAUSE: Duration = Duration::from_millis(200);

/// An event of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Xid(u64),
    /// A memory error that ECC could not correct.
    EccUncorrectable,
    /// MIG instances were made or removed.
    MigChanged,
}

/// The events of all cards, if the driver supports events.
pub struct Events<'n> {
    set: Option<EventSet<'n>>,
}

impl<'n> Events<'n> {
    /// Creates a set of events without cards.
    pub fn new(nvml: &'n Nvml) -> Self {
        let set = nvml.create_event_set();
        if let Err(error) = &set {
            eprintln!("no XID events: {error}; faults are found by reading only");
        }
        Self { set: set.ok() }
    }

    /// Adds a card's events.
    pub fn add(&self, seen: &Seen<'_>) {
        let Some(set) = &self.set else { return };
        let wanted = EventTypes::CRITICAL_XID_ERROR
            | EventTypes::DOUBLE_BIT_ECC_ERROR
            | EventTypes::MIG_CONFIG_CHANGE;
        let added = seen.device.supported_event_types().and_then(|supported| {
            match (wanted & supported).bits() {
                0 => Err(NvmlError::NotSupported),
                events => raw::register(&seen.device, set, events),
            }
        });
        if let Err(error) = added {
            eprintln!("no XID events of card {}: {error}", seen.card.uuid);
        }
    }

    /// Waits until `until`, or until NVML loses a card, or until `is_news` returns true for an
    /// event, so that the cards are read at once.
    pub fn wait(&self, until: Instant, mut is_news: impl FnMut(&Device<'n>, Event) -> bool) {
        let start = Instant::now();
        let mut news = false;
        while let Some(rest) = left(until) {
            let Some(set) = &self.set else {
                return thread::sleep(rest);
            };
            match set.wait(rest.as_millis().try_into().unwrap_or(u32::MAX).max(1)) {
                Ok(data) => {
                    let events = known(data.event_type, data.event_data.as_ref());
                    for event in events.into_iter().flatten() {
                        news |= is_news(&data.device, event);
                    }
                }
                Err(NvmlError::Timeout) => {}
                Err(_) => {
                    // A lost card ends each wait at once.
                    thread::sleep(rest.min(Duration::from_secs(1)));
                    news = true;
                }
            }
            if news {
                return thread::sleep(MIN_PAUSE.saturating_sub(start.elapsed()));
            }
        }
    }
}

fn left(until: Instant) -> Option<Duration> {
    until
        .checked_duration_since(Instant::now())
        .filter(|rest| !rest.is_zero())
}

fn known(types: EventTypes, xid: Option<&XidError>) -> [Option<Event>; 3] {
    let xid = match xid {
        Some(XidError::Value(number)) => Some(Event::Xid(*number)),
        Some(XidError::Unknown) => Some(Event::Xid(999)),
        None => None,
    };
    let ecc = types
        .contains(EventTypes::DOUBLE_BIT_ECC_ERROR)
        .then_some(Event::EccUncorrectable);
    let mig = types
        .contains(EventTypes::MIG_CONFIG_CHANGE)
        .then_some(Event::MigChanged);
    [xid, ecc, mig]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_apart() {
        assert_eq!(
            known(EventTypes::CRITICAL_XID_ERROR, Some(&XidError::Value(79))),
            [Some(Event::Xid(79)), None, None]
        );
        let both = EventTypes::DOUBLE_BIT_ECC_ERROR | EventTypes::MIG_CONFIG_CHANGE;
        assert_eq!(
            known(both, None),
            [None, Some(Event::EccUncorrectable), Some(Event::MigChanged)]
        );
    }
}
