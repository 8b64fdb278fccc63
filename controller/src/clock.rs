use std::time::{Instant, SystemTime};

use tautline_core::compliance_state::UnixTime;

/// A point in time on the monotonic clock, for waits, and on the wall clock, for the API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub instant: Instant,
    pub unix: UnixTime,
}

impl Now {
    pub(crate) fn read() -> Self {
        Self {
            instant: Instant::now(),
            unix: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        }
    }
}
