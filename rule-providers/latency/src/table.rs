//! Tables of round-trip times between nodes and zones, as people write them:
//!
//! ```csv
//! from,to,rtt
//! zone-a,zone-b,12ms
//! node-1,node-2,180us
//! ```

use std::collections::HashMap;

use tautline_core::duration;

/// Round-trip times of pairs, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    micros: HashMap<String, HashMap<String, u64>>,
}

/// A line of a table that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; write it as FROM,TO,RTT with an RTT such as 12ms")]
pub struct TableError {
    line: usize,
    what: String,
}

impl Table {
    /// Adds the rows of a CSV text to the table. Lines that are empty, begin
    /// with `#` or are the header `from,to,rtt` are skipped.
    ///
    /// # Errors
    /// The first line that is malformed.
    pub fn add(&mut self, csv: &str) -> Result<(), TableError> {
        for (i, line) in csv.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || line.eq_ignore_ascii_case("from,to,rtt")
            {
                continue;
            }
            let error = |what: String| TableError { line: i + 1, what };
            let parts: Vec<&str> = line.split(',').map(str::trim).collect();
            let [from, to, rtt] = parts.as_slice() else {
                return Err(error(format!("{} fields instead of 3", parts.len())));
            };
            if from.is_empty() || to.is_empty() {
                return Err(error("a name is empty".into()));
            }
            let rtt = duration::parse(rtt).map_err(|e| error(e.to_string()))?;
            let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
            self.micros
                .entry((*from).into())
                .or_default()
                .insert((*to).into(), micros);
        }
        Ok(())
    }

    /// The figure of a pair, in the direction asked or else the other.
    pub fn micros(&self, a: &str, b: &str) -> Option<u64> {
        let one_way = |a: &str, b: &str| self.micros.get(a)?.get(b).copied();
        one_way(a, b).or_else(|| one_way(b, a))
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.micros.values().map(HashMap::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.micros.is_empty()
    }
}
