//! The second attempt of a call: at another address while the first one is silent, or after a
//! failure.

use std::{pin::pin, time::Duration};

use tokio::time::{Instant, timeout_at};
use tonic::Status;

/// An address is silent if it has not answered after the time until the deadline, divided by this.
const SILENT_TIME_DIVISOR: u32 = 4;

pub(crate) struct Answers<T, G> {
    /// The answer of the first call; `None` if the deadline or the second call's answer came first.
    pub first: Option<Result<T, Status>>,
    /// The second call and its answer; `None` if it was not made.
    pub second: Option<(G, Option<Result<T, Status>>)>,
}

/// Waits for the first answer that is no error, or else for both, until the deadline. `second` may
/// start the other call: once the first is silent, or else when it has failed with a status.
pub(crate) async fn call<T, G, F>(
    first: F,
    mut second: impl FnMut(Option<&Status>) -> Option<(G, F)>,
    deadline: Instant,
) -> Answers<T, G>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut first = pin!(first);
    let silent_at = Instant::now() + time_until(deadline) / SILENT_TIME_DIVISOR;
    let mut one = timeout_at(silent_at, &mut first).await.ok();
    let mut other = match &one {
        None => second(None),
        Some(answer) => answer.as_ref().err().and_then(|e| second(Some(e))),
    };
    if one.is_none() && other.is_none() {
        one = timeout_at(deadline, &mut first).await.ok();
        if let Some(Err(status)) = &one {
            other = second(Some(status));
        }
    }
    let Some((guard, second)) = other else {
        return Answers {
            first: one,
            second: None,
        };
    };
    let (mut second, mut two) = (pin!(second), None);
    let both = async {
        while !matches!(
            (&one, &two),
            (Some(Ok(_)), _) | (_, Some(Ok(_))) | (Some(_), Some(_))
        ) {
            tokio::select! {
                answer = &mut first, if one.is_none() => one = Some(answer),
                answer = &mut second, if two.is_none() => two = Some(answer),
            }
        }
    };
    _ = timeout_at(deadline, both).await;
    Answers {
        first: one,
        second: Some((guard, two)),
    }
}

pub(crate) fn time_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer, or an error, after some milliseconds.
    async fn after(millis: u64, answer: Option<u8>) -> Result<u8, Status> {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        answer.ok_or_else(|| Status::unavailable(""))
    }

    /// Whether each call has an answer or an error; `None` without an outcome.
    async fn outcomes(
        first: (u64, Option<u8>),
        second: Option<(u64, Option<u8>)>,
        starts: impl Fn(Option<&Status>) -> bool,
    ) -> (Option<bool>, Option<Option<bool>>) {
        let start = |failure: Option<&Status>| {
            let (millis, answer) = second.filter(|_| starts(failure))?;
            Some(((), after(millis, answer)))
        };
        let deadline = Instant::now() + Duration::from_millis(400);
        let answers = call(after(first.0, first.1), start, deadline).await;
        let is_ok = |r: Option<Result<u8, Status>>| r.map(|r| r.is_ok());
        (is_ok(answers.first), answers.second.map(|((), r)| is_ok(r)))
    }

    #[tokio::test(start_paused = true)]
    async fn second_call_starts_when_the_first_is_silent() {
        let (never, answer) = (10_000, Some(1));
        let cases = [
            ((50, answer), Some((0, answer)), (Some(true), None)),
            ((50, None), Some((0, answer)), (Some(false), None)),
            ((never, answer), None, (None, None)),
            ((300, answer), None, (Some(true), None)),
            (
                (never, answer),
                Some((50, answer)),
                (None, Some(Some(true))),
            ),
            ((150, answer), Some((200, answer)), (Some(true), Some(None))),
            (
                (150, None),
                Some((200, answer)),
                (Some(false), Some(Some(true))),
            ),
            (
                (200, answer),
                Some((10, None)),
                (Some(true), Some(Some(false))),
            ),
            (
                (150, None),
                Some((20, None)),
                (Some(false), Some(Some(false))),
            ),
            ((never, answer), Some((never, answer)), (None, Some(None))),
        ];
        for (first, second, expected) in cases {
            let is = outcomes(first, second, |failure| failure.is_none()).await;
            assert_eq!(is, expected, "{first:?} {second:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn second_call_starts_when_the_first_has_failed() {
        let (failure, answer) = (None, Some(1));
        let cases = [
            ((50, answer), (0, answer), (Some(true), None)),
            ((50, failure), (9, answer), (Some(false), Some(Some(true)))),
            ((300, failure), (9, answer), (Some(false), Some(Some(true)))),
            (
                (50, failure),
                (9, failure),
                (Some(false), Some(Some(false))),
            ),
            ((300, failure), (200, answer), (Some(false), Some(None))),
        ];
        for (first, second, expected) in cases {
            let is = outcomes(first, Some(second), |failure| failure.is_some()).await;
            assert_eq!(is, expected, "{first:?} {second:?}");
        }
    }
}
