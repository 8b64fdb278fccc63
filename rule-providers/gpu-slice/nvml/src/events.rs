//! Waits for NVML's events of cards (XIDs, uncorrectable memory errors, MIG changes), so that the
//! cards are read at once instead of at the next interval.

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
pub struct Events<'n>(Option<EventSet<'n>>);

impl<'n> Events<'n> {
    /// Creates a set of events without cards.
    pub fn new(nvml: &'n Nvml) -> Self {
        let set = nvml.create_event_set();
        if let Err(error) = &set {
            eprintln!("no XID events: {error}; faults are found by reading only");
        }
        Self(set.ok())
    }

    /// Adds a card's events.
    pub fn add(&self, seen: &Seen<'_>) {
        let Some(set) = &self.0 else { return };
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
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            let Some(set) = &self.0 else {
                return thread::sleep(rest);
            };
            match set.wait(rest.as_millis().try_into().unwrap_or(u32::MAX).max(1)) {
                Ok(data) => {
                    for event in known(data.event_type, data.event_data.as_ref()) {
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

fn known(types: EventTypes, xid: Option<&XidError>) -> impl Iterator<Item = Event> {
    let xid = xid.map(|xid| match xid {
        XidError::Value(number) => Event::Xid(*number),
        XidError::Unknown => Event::Xid(999),
    });
    let others = [
        (EventTypes::DOUBLE_BIT_ECC_ERROR, Event::EccUncorrectable),
        (EventTypes::MIG_CONFIG_CHANGE, Event::MigChanged),
    ];
    let others = others
        .into_iter()
        .filter(move |(of, _)| types.contains(*of));
    xid.into_iter().chain(others.map(|(_, event)| event))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_apart() {
        let known = |types, xid| known(types, xid).collect::<Vec<_>>();
        let xid = XidError::Value(79);
        assert_eq!(
            known(EventTypes::CRITICAL_XID_ERROR, Some(&xid)),
            [Event::Xid(79)]
        );
        let both = EventTypes::DOUBLE_BIT_ECC_ERROR | EventTypes::MIG_CONFIG_CHANGE;
        assert_eq!(
            known(both, None),
            [Event::EccUncorrectable, Event::MigChanged]
        );
    }
}
