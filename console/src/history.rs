//! Keeps the last hours of the figures that the servers count, and reads them at most twice a
//! minute.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::future::join_all;
use tautline_runtime::history::{HISTORY_MINUTES, HISTORY_PATH, Series};

use crate::{
    admin::{admin, parse_all},
    source::{AdminAnswer, Component, Source},
};

/// The time for which the figures are shown before they are read again. Servers add a sample each
/// minute.
const FRESH_TIME: Duration = Duration::from_secs(30);

/// The server that counts each figure, and the name of the figure in its answer.
const FIGURES: [(Component, &str); 3] = [
    (Component::Controller, VIOLATIONS),
    (Component::Extender, WAITING_PODS),
    (Component::Gpu, GIVEN_CARDS),
];
/// The number of bindings in violation.
pub(crate) const VIOLATIONS: &str = "violations";
/// The number of pods that wait for a node.
pub(crate) const WAITING_PODS: &str = "waitingPods";
/// The percentage of all cards that pods have.
pub(crate) const GIVEN_CARDS: &str = "givenCards";

/// The last hours of the figures, by name. A figure is absent if its server has fewer than two
/// samples, is of an older version, or does not answer.
pub(crate) type History = BTreeMap<&'static str, Series>;

async fn read(source: &dyn Source) -> History {
    let figures = FIGURES.map(|(component, name)| async move {
        let series = series(source, component, name).await;
        series.map(|series| (name, series))
    });
    join_all(figures).await.into_iter().flatten().collect()
}

async fn series(source: &dyn Source, component: Component, name: &str) -> Option<Series> {
    let answers = admin(source, component, HISTORY_PATH).await.ok()?;
    merge(&answers, name)
}

/// Returns the figure with the greatest value of all replicas for each minute.
fn merge(answers: &[AdminAnswer], name: &str) -> Option<Series> {
    let lists = parse_all::<Vec<Series>>(answers).ok()?;
    let all = lists.into_iter().flatten();
    let all: Vec<Series> = all.filter(|series| series.name == name).collect();
    let mut greatest = BTreeMap::new();
    for (minute, value) in all.iter().flat_map(|series| &series.samples) {
        let known: &mut u64 = greatest.entry(*minute).or_default();
        *known = (*known).max(*value);
    }
    let (last, _) = greatest.last_key_value()?;
    let first = last.saturating_sub(HISTORY_MINUTES - 1);
    let samples: Vec<(u64, u64)> = greatest.split_off(&first).into_iter().collect();
    let unit = all.into_iter().next()?.unit;
    (samples.len() > 1).then(|| Series {
        name: name.to_owned(),
        unit,
        samples,
    })
}

/// The figures as they were last read, with the time.
#[derive(Default)]
pub(crate) struct LastHistory(Mutex<Option<(Instant, History)>>);

impl LastHistory {
    /// Returns the figures, which may be [`FRESH_TIME`] old.
    pub(crate) async fn get(&self, source: &dyn Source) -> History {
        if let Some(fresh) = self.fresh() {
            return fresh;
        }
        let history = read(source).await;
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), history.clone()));
        history
    }

    fn fresh(&self) -> Option<History> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, history) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH_TIME)?;
        Some(history.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: u16, body: impl ToString) -> AdminAnswer {
        AdminAnswer {
            from: "pod c-1".into(),
            status,
            body: body.to_string().into_bytes().into(),
        }
    }

    fn samples(samples: &[(u64, u64)]) -> AdminAnswer {
        let other = json!({"name": "other", "unit": "pods", "samples": [[1, 999], [2, 999]]});
        let wanted = json!({"name": "violations", "unit": "bindings", "samples": samples});
        answer(200, json!([other, wanted]))
    }

    #[test]
    fn merge_has_the_greatest_value_of_each_minute() {
        let old = answer(404, "not found; try /livez, /readyz or /metrics\n");
        let answers = [
            samples(&[(7, 1), (8, 5)]),
            old.clone(),
            samples(&[]),
            samples(&[(8, 2), (9, 3)]),
        ];
        let merged = merge(&answers, "violations").unwrap();
        assert_eq!(merged.samples, [(7, 1), (8, 5), (9, 3)]);
        assert_eq!((&*merged.name, &*merged.unit), ("violations", "bindings"));
        assert_eq!(merge(&[old], "violations"), None);
        assert_eq!(merge(&[answer(200, "{}")], "violations"), None);
    }

    #[test]
    fn merge_needs_two_samples() {
        assert_eq!(merge(&[samples(&[])], "violations"), None);
        assert_eq!(merge(&[samples(&[(7, 1)])], "violations"), None);
        assert_eq!(merge(&[samples(&[(7, 1), (8, 1)])], "none"), None);
    }

    #[test]
    fn merge_has_the_last_hours_only() {
        let all: Vec<(u64, u64)> = (0..2000).map(|minute| (minute, 1)).collect();
        let merged = merge(&[samples(&all)], "violations").unwrap();
        assert_eq!(merged.samples.len() as u64, HISTORY_MINUTES);
        assert_eq!(merged.samples[0].0, 1640);
        let odd = merge(
            &[samples(&[(0, u64::MAX), (u64::MAX, 0), (7, 1)])],
            "violations",
        );
        assert_eq!(odd, None);
    }
}
