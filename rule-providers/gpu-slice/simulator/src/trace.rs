//! Reads a recorded cluster and its requests in the layout of the openb trace.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use tautline_gpu_placement::{CARD_MILLI, CardLinks, Shape, SharingMode, Topology};

use crate::files::{Error, Row, Table};

/// The maximum of amounts and times in a trace: larger than any real one, and far from overflow.
const MAX_AMOUNT: i64 = 1 << 40;
/// The maximum number of cards of a node or pod.
const MAX_CARDS: i64 = 64;

/// A node of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the node, from the column `sn`.
    pub name: String,
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Main memory in bytes.
    pub memory_bytes: i64,
    /// Number of cards, 0 to 64.
    pub cards: u16,
    /// Number of consecutive cards in each NVLink domain; 0: no NVLink.
    pub nvlink: u16,
    /// Product name of the cards, such as `V100M32`.
    pub model: Arc<str>,
}

/// A pod of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub(crate) name: String,
    /// Index of the pod's request in [`Workload::shapes`].
    pub shape: u32,
    /// Time from creation to deletion in seconds; `None`: the trace does not have it.
    pub lifetime: Option<u64>,
}

/// A file `pods/NAME.csv` of the trace.
#[derive(Clone, Debug)]
pub struct Workload {
    pub(crate) name: String,
    /// Different requests of the workload's pods.
    pub shapes: Vec<Shape>,
    /// Pods, sorted by name.
    pub pods: Vec<Pod>,
}

/// A folder with a recorded cluster.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) dir: PathBuf,
    /// Nodes, sorted by name.
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
    /// Reads `nodes.csv`. Fails also if no node has a card.
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

    /// The names of the workloads: the files in `pods`, sorted, without `.csv` and `.gz`.
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
        let table = Table::read(&self.dir.join(format!("pods/{name}.csv")))?;
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
        Ok(Workload {
            name: name.to_owned(),
            shapes,
            pods,
        })
    }
}

impl Workload {
    /// The request of a pod; `pod` is an index of `pods`.
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
    let milli = milli.min(CARD_MILLI.into()) as u16;
    if cards > 1 && milli < CARD_MILLI {
        let wrong = format!("{cards} cards are requested in parts; write 1000, or num_gpu 1");
        return Err(row.wrong("gpu_milli", wrong));
    }
    let models = row.optional("gpu_spec").split('|');
    let models = models.filter(|m| cards > 0 && !m.is_empty());
    Ok(Shape {
        cpu_milli: row.number("cpu_milli", "thousandths of a CPU", 0, MAX_AMOUNT)?,
        memory_bytes: row.number("memory_mib", "MiB of memory", 0, MAX_AMOUNT)? << 20,
        whole: if milli == CARD_MILLI { cards as u16 } else { 0 },
        share: if milli == CARD_MILLI { 0 } else { milli },
        mode: SharingMode::Milli,
        models: models.map(Arc::from).collect(),
    })
}

fn lifetime(row: &Row<'_>) -> Result<Option<u64>, Error> {
    if row.optional("creation_time").is_empty() || row.optional("deletion_time").is_empty() {
        return Ok(None);
    }
    let from = row.number("creation_time", "seconds", 0, MAX_AMOUNT)?;
    let what = "seconds, no earlier than creation_time";
    let to = row.number("deletion_time", what, from, MAX_AMOUNT)?;
    Ok(Some((to - from) as u64))
}
