use std::time::{Duration, Instant};

const DEFAULT_TIME: Duration = Duration::from_millis(500);
/// The most of the caller's time that is used, as the scheduler waits.
const MAX_TIME: Duration = Duration::from_secs(2);
/// The least time in which the agent can be reached and its echoes can return.
pub(super) const MIN_TIME: Duration = Duration::from_millis(5);

/// Returns the end of the measurements for an answer, which may take four fifths of the caller's
/// time; the rest is for the answer. Returns `None` if the time is too short.
pub(super) fn measuring_deadline(deadline: Option<Instant>, now: Instant) -> Option<Instant> {
    let left = deadline.map_or(DEFAULT_TIME, |d| d.saturating_duration_since(now));
    let time = left.min(MAX_TIME).mul_f64(0.8);
    (time >= MIN_TIME).then_some(now + time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_time_is_for_the_answer() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let time = |d| measuring_deadline(d, now).map(|u| u - now);
        assert_eq!(time(Some(now + ms(500))), Some(ms(400)));
        assert_eq!(time(None), Some(ms(400)));
        assert_eq!(time(Some(now + ms(90_000))), Some(ms(1_600)));
        assert_eq!(time(Some(now + ms(5))), None);
        assert_eq!(time(Some(now)), None);
    }
}
