//! A table of values between nodes and zones, in CSV: `from,to,rtt`, then `node-1,node-2,180us`.

use std::marker::PhantomData;

use hashbrown::{HashMap, hash_map::Entry};
use tautline_core::{
    duration::{self, DurationError},
    quantity::{self, QuantityError},
};

use crate::location::Location;

/// The longest line, in bytes: two names of up to 253 bytes each, and a value.
const MAX_LINE_BYTES: usize = 600;

pub trait Unit: Copy + std::fmt::Debug + Default + Send + Sync + 'static {
    const HEADER: &'static str;
    const FORM: &'static str;

    fn parse(text: &str) -> Result<u64, ValueError>;
}

/// The error of a text that is not a value of a table.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    #[error(transparent)]
    Duration(#[from] DurationError),
    #[error(transparent)]
    Quantity(#[from] QuantityError),
}

/// The unit of round-trip times: values are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrip;

/// The unit of bandwidths: values are in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth;

impl Unit for RoundTrip {
    const HEADER: &'static str = "from,to,rtt";
    const FORM: &'static str = "FROM,TO,RTT with an RTT such as 12ms";

    fn parse(text: &str) -> Result<u64, ValueError> {
        let micros = duration::parse(text)?.as_micros();
        Ok(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

impl Unit for Bandwidth {
    const HEADER: &'static str = "from,to,bits_per_second";
    const FORM: &'static str = "FROM,TO,BITS_PER_SECOND with a number such as 10G";

    fn parse(text: &str) -> Result<u64, ValueError> {
        Ok(quantity::parse_milli(text)?.unsigned_abs() / 1_000)
    }
}

/// The values between nodes or zones. A row applies to both directions, unless the other one has
/// its own row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairTable<U> {
    /// The cells by the second name, then by the first one.
    cells: HashMap<String, HashMap<String, Cell>>,
    unit: PhantomData<U>,
}

/// A table of round-trip times.
pub type Table = PairTable<RoundTrip>;

/// A table of bandwidths.
pub type BandwidthTable = PairTable<Bandwidth>;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; write it as {form}")]
pub struct TableError {
    line: usize,
    what: String,
    form: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    value: u64,
    /// True if the value is from a row of this direction, not of the reverse one.
    own: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsTo<'a> {
    to: Location<'a>,
    node: Option<&'a HashMap<String, Cell>>,
    zone: Option<&'a HashMap<String, Cell>>,
}

/// A row of a table, in the order as written, or in the order of the pair to which it applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub from: &'a str,
    pub to: &'a str,
    pub value: u64,
}

/// Parses the rows of a CSV text up to the first malformed line, which is the last item.
pub(crate) fn rows<U: Unit>(csv: &str) -> impl Iterator<Item = Result<Row<'_>, TableError>> {
    let mut failed = false;
    // Spreadsheets begin a file with a byte order mark.
    let lines = csv.lines().enumerate();
    let lines = lines.map(|(i, line)| (i, line.trim_start_matches('\u{feff}').trim()));
    let rows = lines.filter(|(_, line)| {
        !(line.is_empty() || line.starts_with('#') || line.eq_ignore_ascii_case(U::HEADER))
    });
    rows.map(|(i, line)| row::<U>(i + 1, line))
        .take_while(move |row| !std::mem::replace(&mut failed, row.is_err()))
}

fn row<U: Unit>(number: usize, line: &str) -> Result<Row<'_>, TableError> {
    let error = |what: String| TableError {
        line: number,
        what,
        form: U::FORM,
    };
    if line.len() > MAX_LINE_BYTES {
        let what = format!("it is longer than {MAX_LINE_BYTES} bytes");
        return Err(error(what));
    }
    let parts: Vec<&str> = line.split(',').map(str::trim).collect();
    let [from, to, text] = parts.as_slice() else {
        return Err(error(format!("{} fields instead of 3", parts.len())));
    };
    if from.is_empty() || to.is_empty() {
        return Err(error("a name is empty".into()));
    }
    let value = U::parse(text).map_err(|e| error(e.to_string()))?;
    Ok(Row { from, to, value })
}

impl<U: Unit> PairTable<U> {
    /// Adds the rows of a CSV text. Empty lines, comments (`#`) and the header are skipped.
    pub fn add(&mut self, csv: &str) -> Result<(), TableError> {
        for row in rows::<U>(csv) {
            self.insert(row?);
        }
        Ok(())
    }

    pub(crate) fn insert(&mut self, row: Row<'_>) {
        let Row { from, to, value } = row;
        let mut cell = |to: &str, from: &str, own: bool| {
            let cells = self.cells.entry_ref(to).or_default();
            match cells.entry(from.into()) {
                Entry::Occupied(mut old) if own || !old.get().own => {
                    old.insert(Cell { value, own });
                }
                Entry::Occupied(_) => {}
                Entry::Vacant(free) => _ = free.insert(Cell { value, own }),
            }
        };
        cell(from, to, false);
        cell(to, from, true);
    }

    /// Returns the number of rows; rows with the same ends in the same order count once.
    pub fn len(&self) -> usize {
        let cells = self.cells.values().flat_map(HashMap::values);
        cells.filter(|c| c.own).count()
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    pub(crate) fn rows_to<'a>(&'a self, to: Location<'a>) -> RowsTo<'a> {
        RowsTo {
            to,
            node: self.cells.get(to.node),
            zone: to.zone.and_then(|z| self.cells.get(z)),
        }
    }
}

impl<'a> RowsTo<'a> {
    /// Returns the most specific row: node to node, node to zone, zone to node, or zone to zone.
    pub(crate) fn from(&self, from: Location<'a>) -> Option<Row<'a>> {
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
