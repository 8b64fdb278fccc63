use std::time::Duration;

use smallvec::SmallVec;

use crate::format::micros;

/// The least number of samples that jitter needs: the p95 of fewer samples is the worst sample.
const MIN_JITTER_SAMPLES: u32 = 20;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Measurement {
    Fresh(RttStats),
    /// Three or more echoes in a row were lost.
    Unreachable {
        /// The time since the first report of the losses.
        since: Duration,
        /// True if the pair is visited less often than every five seconds, so that a probe may
        /// find that it answers again.
        rarely_probed: bool,
    },
    /// The pair was measured in the last ten minutes, but the times are not current.
    Stale(RttStats),
    #[default]
    Missing,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RttStats {
    /// The median of the last five samples.
    pub median: Duration,
    /// The medians after each of the last three visits, newest first.
    pub windows: SmallVec<[Duration; 3]>,
    /// The 50th percentile of the last `samples` samples.
    pub p50: Duration,
    /// The 95th percentile of the same samples.
    pub p95: Duration,
    /// The number of samples behind both percentiles, at most 60.
    pub samples: u32,
    /// The time since the last sample.
    pub age: Duration,
    /// True if the p50 of the two directions differ by over 20 %. The times are those of the
    /// direction with the larger median.
    pub asymmetric: bool,
    /// True if the times are those of TCP connects, because UDP echoes are lost.
    pub connect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("jitter needs {MIN_JITTER_SAMPLES} samples, there are {0}")]
pub(crate) struct TooFewSamples(pub u32);

impl RttStats {
    /// Returns the jitter, p95 - p50, in whole microseconds, at least 1.
    pub(crate) fn jitter_micros(&self) -> Result<u64, TooFewSamples> {
        match self.samples {
            MIN_JITTER_SAMPLES.. => Ok(micros(self.p95.saturating_sub(self.p50))),
            few => Err(TooFewSamples(few)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
