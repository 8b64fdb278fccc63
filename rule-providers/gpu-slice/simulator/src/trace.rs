//! A recorded cluster and its requests in the layout of the openb trace.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use tautline_gpu_placement::{CARD, CardLinks, Shape, SharingMode, Topology};

use crate::{
    error::Error,
    files::{Row, Table},
};

/// Larger than any real node or pod, and far from overflow.
const MAX_AMOUNT: i64 = 1 << 40;
const MAX_CARDS: i64 = 64;

/// A node of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The column `sn`.
    pub name: String,
    /// Thousandths of a core.
    pub cpu_milli: i64,
    /// Main memory in bytes.
    pub memory_bytes: i64,
    /// Number of cards, 0 to 64.
    pub cards: u16,
    /// Cards of one NVLink domain, in the order of the cards; 0: no NVLink.
    pub nvlink: u16,
    /// Product name of the cards, such as `V100M32`.
    pub model: Arc<str>,
}

/// A pod of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub(crate) name: String,
    /// Index of its request in [`Workload::shapes`].
    pub shape: u32,
    /// In seconds.
    pub lifetime: Option<u64>,
}

/// A file `pods/NAME.csv` of the trace.
#[derive(Clone, Debug)]
pub struct Workload {
    pub(crate) name: String,
    /// The different requests of its pods.
    pub shapes: Vec<Shape>,
    /// Sorted by name.
    pub pods: Vec<Pod>,
}

/// A folder with a recorded cluster.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) dir: PathBuf,
    /// Sorted by name.
    pub nodes: Vec<Node>,
}

impl Node {
    pub(crate) fn topology(&self) -> Option<Topology> {
        let links = |card| CardLinks {
            nvlink: u16::checked_div(card, self.nvlink),
            numa: None,
        };
        Topology::new((0..self.cards).map(links))
    }
}

impl Trace {
    /// Reads `nodes.csv`; Err also if no node has a card.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let table = Table::read(&dir.join("nodes.csv"))?;
        let node = |row: Row<'_>| {
            Ok(Node {
                name: row.text("sn")?.to_owned(),
                cpu_milli: row.number("cpu_milli", "thousandths of a CPU", 0, MAX_AMOUNT)?,
                memory_bytes: row.number("memory_mib", "MiB of memory", 0, MAX_AMOUNT)? << 20,
                cards: row.number("gpu", "cards", 0, MAX_CARDS)? as u16,
                nvlink: match row.optional("nvlink") {
                    "" => 0,
                    _ => row.number("nvlink", "cards of an NVLink domain", 0, MAX_CARDS)? as u16,
                },
                model: row.text("model")?.into(),
            })
        };
        let mut nodes: Vec<Node> = table.rows().map(node).collect::<Result<_, Error>>()?;
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        if nodes.iter().all(|n| n.cards == 0) {
            return Err(Error::Invalid(format!(
                "{} has no node with a card; at least one must have gpu > 0",
                dir.join("nodes.csv").display()
            )));
        }
        Ok(Self {
            dir: dir.to_owned(),
            nodes,
        })
    }

    pub(crate) fn cards(&self) -> i64 {
        self.nodes.iter().map(|n| i64::from(n.cards)).sum()
    }

    /// Names of the files in `pods`, sorted, without `.csv` and `.gz`.
    pub fn workloads(&self) -> Result<Vec<String>, Error> {
        let dir = self.dir.join("pods");
        let read = |source| Error::Read {
            file: dir.clone(),
            source,
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(read)? {
            let name = entry.map_err(read)?.file_name();
            let name = name.to_string_lossy();
            let stem = name.strip_suffix(".gz").unwrap_or(&name);
            names.extend(stem.strip_suffix(".csv").map(str::to_owned));
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    pub(crate) fn workload(&self, name: &str) -> Result<Workload, Error> {
        let known = self.workloads()?;
        if !known.iter().any(|k| k == name) {
            return Err(Error::Invalid(format!(
                "{} has no workload {name:?}; it has {}",
                self.dir.display(),
                known.join(", ")
            )));
        }
        Workload::read(&self.dir.join(format!("pods/{name}.csv")), name)
    }
}

impl Workload {
    fn read(path: &Path, name: &str) -> Result<Self, Error> {
        let table = Table::read(path)?;
        let (mut shapes, mut known) = (Vec::new(), HashMap::new());
        let mut pods = Vec::new();
        for row in table.rows() {
            let shape = shape(&row)?;
            let number = *known.entry(shape.clone()).or_insert_with(|| {
                shapes.push(shape);
                shapes.len() as u32 - 1
            });
            pods.push(Pod {
                name: row.text("name")?.to_owned(),
                shape: number,
                lifetime: lifetime(&row)?,
            });
        }
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self {
            name: name.to_owned(),
            shapes,
            pods,
        })
    }

    /// `pod` is an index of `pods`.
    pub fn shape_of(&self, pod: u32) -> &Shape {
        &self.shapes[self.pods[pod as usize].shape as usize]
    }
}

fn shape(row: &Row<'_>) -> Result<Shape, Error> {
    let cards = row.number("num_gpu", "cards", 0, MAX_CARDS)?;
    let milli = match cards {
        0 => 0,
        _ => row.number("gpu_milli", "thousandths of a card", 1, MAX_AMOUNT)?,
    };
    let milli = milli.min(CARD.into()) as u16;
    if cards > 1 && milli < CARD {
        let wrong = format!("{cards} cards are requested in parts; write 1000, or num_gpu 1");
        return Err(row.wrong("gpu_milli", wrong));
    }
    let models = match cards {
        0 => [].into(),
        _ => row
            .optional("gpu_spec")
            .split('|')
            .filter(|m| !m.is_empty())
            .map(Arc::from)
            .collect(),
    };
    Ok(Shape {
        cpu_milli: row.number("cpu_milli", "thousandths of a CPU", 0, MAX_AMOUNT)?,
        memory_bytes: row.number("memory_mib", "MiB of memory", 0, MAX_AMOUNT)? << 20,
        whole: if milli == CARD { cards as u16 } else { 0 },
        share: if milli == CARD { 0 } else { milli },
        mode: SharingMode::Milli,
        models,
    })
}

fn lifetime(row: &Row<'_>) -> Result<Option<u64>, Error> {
    if row.optional("creation_time").is_empty() || row.optional("deletion_time").is_empty() {
        return Ok(None);
    }
    let from = row.number("creation_time", "seconds", 0, MAX_AMOUNT)?;
    let to = row.number(
        "deletion_time",
        "seconds, no earlier than creation_time",
        from,
        MAX_AMOUNT,
    )?;
    Ok(Some((to - from) as u64))
}
