//! Tables of figures between nodes and zones, as people write them:
//!
//! ```csv
//! from,to,rtt
//! zone-a,zone-b,12ms
//! node-1,node-2,180us
//! ```

use std::time::Duration;

use hashbrown::{HashMap, hash_map::Entry};
use tautline_core::{duration, quantity};

use crate::places::Place;

/// Round-trip times of pairs, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table(Pairs);

/// What the ways between places carry, in bits a second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BandwidthTable(Pairs);

/// A line of a table that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; write it as {form}")]
pub struct TableError {
    line: usize,
    what: String,
    form: &'static str,
}

/// Figures by the place that they lead to, then by the one they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pairs(HashMap<String, HashMap<String, Cell>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    value: u64,
    /// A row says so; else the row of the other direction does.
    own: bool,
}

/// The rows that may concern the ways to one place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Towards<'a> {
    to: Place<'a>,
    node: Option<&'a HashMap<String, Cell>>,
    zone: Option<&'a HashMap<String, Cell>>,
}

/// The row that counts for a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub value: u64,
}

impl Table {
    /// Adds the rows of a CSV text to the table. Lines that are empty, begin
    /// with `#` or are the header `from,to,rtt` are skipped.
    ///
    /// # Errors
    /// The first line that is malformed.
    pub fn add(&mut self, csv: &str) -> Result<(), TableError> {
        let form = "FROM,TO,RTT with an RTT such as 12ms";
        self.0.add(csv, "from,to,rtt", form, |text| {
            let rtt: Duration = duration::parse(text).map_err(|e| e.to_string())?;
            Ok(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX))
        })
    }

    /// The figure of a pair, in the direction asked or else the other.
    pub fn micros(&self, a: &str, b: &str) -> Option<u64> {
        self.0.get(a, b)
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn pairs(&self) -> &Pairs {
        &self.0
    }
}

impl BandwidthTable {
    /// Adds the rows of a CSV text to the table. Lines that are empty, begin
    /// with `#` or are the header `from,to,bits_per_second` are skipped.
    ///
    /// # Errors
    /// The first line that is malformed.
    pub fn add(&mut self, csv: &str) -> Result<(), TableError> {
        let form = "FROM,TO,BITS_PER_SECOND with a number such as 10G";
        self.0.add(csv, "from,to,bits_per_second", form, |text| {
            let milli = quantity::parse_milli(text).map_err(|e| e.to_string())?;
            Ok(milli.unsigned_abs() / 1_000)
        })
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn pairs(&self) -> &Pairs {
        &self.0
    }
}

impl Pairs {
    fn add(
        &mut self,
        csv: &str,
        header: &str,
        form: &'static str,
        value: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<(), TableError> {
        for (i, line) in csv.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || line.eq_ignore_ascii_case(header) {
                continue;
            }
            let error = |what: String| TableError {
                line: i + 1,
                what,
                form,
            };
            let parts: Vec<&str> = line.split(',').map(str::trim).collect();
            let [from, to, text] = parts.as_slice() else {
                return Err(error(format!("{} fields instead of 3", parts.len())));
            };
            if from.is_empty() || to.is_empty() {
                return Err(error("a name is empty".into()));
            }
            self.insert(from, to, value(text).map_err(error)?);
        }
        Ok(())
    }

    fn insert(&mut self, from: &str, to: &str, value: u64) {
        let mut cell = |to: &str, from: &str, own: bool| match self
            .0
            .entry_ref(to)
            .or_default()
            .entry(from.into())
        {
            Entry::Occupied(mut old) if own || !old.get().own => {
                old.insert(Cell { value, own });
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => _ = free.insert(Cell { value, own }),
        };
        cell(from, to, false);
        cell(to, from, true);
    }

    fn get(&self, from: &str, to: &str) -> Option<u64> {
        self.0.get(to)?.get(from).map(|c| c.value)
    }

    fn len(&self) -> usize {
        let cells = self.0.values().flat_map(HashMap::values);
        cells.filter(|c| c.own).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For many questions about the ways to one place.
    pub(crate) fn towards<'a>(&'a self, to: Place<'a>) -> Towards<'a> {
        Towards {
            to,
            node: self.0.get(to.node),
            zone: to.zone.and_then(|z| self.0.get(z)),
        }
    }
}

impl<'a> Towards<'a> {
    /// The most specific row: node and node, node and the other's zone, zone and
    /// node, zone and zone.
    pub(crate) fn from(&self, from: Place<'a>) -> Option<Row<'a>> {
        if self.node.is_none() && self.zone.is_none() {
            return None;
        }
        let zone = self.to.zone.unwrap_or_default();
        let row = |cells: Option<&HashMap<String, Cell>>, from: Option<&'a str>, to: &'a str| {
            let from = from?;
            let value = cells?.get(from)?.value;
            Some(Row { from, to, value })
        };
        row(self.node, Some(from.node), self.to.node)
            .or_else(|| row(self.zone, Some(from.node), zone))
            .or_else(|| row(self.node, from.zone, self.to.node))
            .or_else(|| row(self.zone, from.zone, zone))
    }
}
