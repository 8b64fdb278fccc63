//! Expected answers of the soak's own providers: the clocks' from the answers that they log,
//! the scripted provider's from its table.

use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use crate::{clock, processes};

/// From filter's request to the pod's Binding: the extender's deadline for each, one more for
/// reading the pod in between, and a hang of the extender.
const CYCLE_MILLIS: u64 = 15_000;
/// The scripted provider lags behind its table while it hangs or the API server is down, and
/// during its backoff.
const BEHIND_MILLIS: u64 = 40_000;
/// Older answers are dropped.
const KEPT_MILLIS: u64 = 300_000;

#[derive(Clone, Copy)]
struct Answer {
    by: char,
    at: u64,
    slot: u64,
}

pub struct ExpectedAnswers {
    seed: u64,
    files: Vec<(char, PathBuf, u64)>,
    /// Logged answers, by the pod's UID.
    answers: HashMap<String, Vec<Answer>>,
    /// The nodes that the script refuses, with the time of each change.
    tables: Vec<(u64, BTreeSet<String>)>,
}

/// The clocks' answer for a pod's node.
#[derive(PartialEq)]
pub enum Verdict {
    Usable,
    /// Not by the last answer, but by one before it in the same cycle.
    UsableBefore,
    Unusable(String),
}

impl ExpectedAnswers {
    pub fn new(seed: u64, dir: &Path) -> Self {
        let file = |name| (name, processes::answers(dir, name), 0);
        Self {
            seed,
            files: ['a', 'b'].map(file).to_vec(),
            answers: HashMap::new(),
            tables: vec![(0, BTreeSet::new())],
        }
    }

    /// Reads new lines of the logs.
    fn read(&mut self) -> std::io::Result<()> {
        for (name, path, read) in &mut self.files {
            let mut text = String::new();
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(*read))?;
            file.read_to_string(&mut text)?;
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            *read += whole as u64;
            for line in text[..whole].lines() {
                let mut parts = line.split(' ');
                let uid = parts.next().unwrap_or_default().to_owned();
                let mut number = || parts.next()?.parse::<u64>().ok();
                if let (Some(at), Some(slot)) = (number(), number()) {
                    let by = *name;
                    let answers = self.answers.entry(uid).or_default();
                    answers.push(Answer { by, at, slot });
                }
            }
        }
        Ok(())
    }

    /// The clocks' answers for the pod and node before the Binding in the second that begins at
    /// `bound`.
    pub fn clocks(&mut self, uid: &str, node: &str, bound: u64) -> Verdict {
        if let Err(error) = self.read() {
            return Verdict::Unusable(format!("answers cannot be read: {error}"));
        }
        let all = self.answers.get(uid).map_or(&[][..], Vec::as_slice);
        let in_cycle = |a: &&Answer| a.at <= bound + 1000 && a.at + CYCLE_MILLIS >= bound;
        let mut in_order: Vec<Answer> = all.iter().filter(in_cycle).copied().collect();
        in_order.sort_by_key(|a| a.at);
        let usable = |a: &Answer| clock::cost(self.seed, a.by, node, a.slot) >= 0;
        match in_order.iter().rposition(usable) {
            Some(at) if at + 1 == in_order.len() => Verdict::Usable,
            Some(_) => Verdict::UsableBefore,
            None => {
                let line = |a: &Answer| format!("{} at {} of slot {}", a.by, a.at, a.slot);
                let lines: Vec<String> = all.iter().map(line).collect();
                Verdict::Unusable(format!("bound at {bound}, answered: {}", lines.join(", ")))
            }
        }
    }

    pub fn forget(&mut self, uid: &str) {
        self.answers.remove(uid);
    }

    /// Drops old answers, also of pods that were never seen bound.
    pub fn prune(&mut self) {
        let now = clock::now_millis();
        self.answers
            .retain(|_, all| all.last().is_some_and(|a| a.at + KEPT_MILLIS > now));
    }

    /// Records that the script changes to refuse these nodes.
    pub fn record_table(&mut self, refused: BTreeSet<String>) {
        self.tables.push((clock::now_millis(), refused));
    }

    /// Whether the script refused the node long enough for its provider to know.
    pub fn refused(&self, node: &str, bound: u64) -> bool {
        let ends = self.tables.iter().skip(1).map(|(from, _)| *from);
        let mut at_the_time =
            self.tables
                .iter()
                .zip(ends.chain([u64::MAX]))
                .filter(|((from, _), end)| {
                    *from <= bound + 1000 && end.saturating_add(BEHIND_MILLIS) >= bound
                });
        at_the_time.all(|((_, refused), _)| refused.contains(node))
    }
}
