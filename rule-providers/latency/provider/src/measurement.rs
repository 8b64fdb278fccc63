use std::time::Duration;

use smallvec::SmallVec;

use crate::format::micros;

/// A p95 of fewer samples is the worst sample.
const JITTER_SAMPLES: u32 = 20;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Measurement {
    Fresh(RttStats),
    /// Three or more echoes in a row were lost. `rarely_probed`: the pair is visited less
    /// than every five seconds, so a probe may find that it answers again.
    Unreachable {
        since: Duration,
        rarely_probed: bool,
    },
    /// Measured in the last ten minutes, but not current.
    Stale(RttStats),
    #[default]
    Missing,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RttStats {
    /// Of the last five samples.
    pub median: Duration,
    /// That median after each of the last three visits, newest first.
    pub windows: SmallVec<[Duration; 3]>,
    /// Of the last `samples` samples, as is `p95`.
    pub p50: Duration,
    pub p95: Duration,
    /// At most 60.
    pub samples: u32,
    pub age: Duration,
    /// The p50 of the two directions differ by over 20 %; these are of the larger.
    pub asymmetric: bool,
    /// Times of TCP connects: UDP echoes are lost.
    pub connect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("jitter needs {JITTER_SAMPLES} samples, there are {0}")]
pub(crate) struct TooFewSamples(pub u32);

impl RttStats {
    /// p95 - p50 in whole microseconds, at least 1.
    pub(crate) fn jitter_micros(&self) -> Result<u64, TooFewSamples> {
        match self.samples {
            JITTER_SAMPLES.. => Ok(micros(self.p95.saturating_sub(self.p50))),
            few => Err(TooFewSamples(few)),
        }
    }
}

#[cfg(test)]
impl RttStats {
    pub(crate) fn of(median: Duration) -> Self {
        Self {
            median,
            windows: [median; 3].into_iter().collect(),
            p50: median,
            p95: median * 2,
            samples: 60,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn jitter_is_positive_and_needs_samples(samples in 0u32..80, p50 in 0u64..9_000, p95 in 0u64..9_000) {
            let stats = RttStats {
                p50: Duration::from_micros(p50),
                p95: Duration::from_micros(p95),
                samples,
                ..RttStats::default()
            };
            let expected = match samples >= 20 {
                true => Ok(p95.saturating_sub(p50).max(1)),
                false => Err(TooFewSamples(samples)),
            };
            prop_assert_eq!(stats.jitter_micros(), expected);
        }
    }
}
