//! The replayed round-trip times, with their noise, in two periods: one to learn from, one with
//! the true values.

use std::{fs::File, io::Read, path::Path};

use anyhow::{Context, Result, bail};
use lzma_rust2::XzReader;

use crate::{
    made::Made,
    random::Random,
    shapes::{SHAPES, Shape},
    synthetic::Synthetic,
};

const PLANETLAB: usize = 490;
const SEATTLE: usize = 99;
/// The minimum of Seattle's times.
const SEATTLE_FLOOR_CENTISECONDS: f64 = 0.5;

/// The seed of synthetic networks.
pub const DRAW: u64 = 7;

/// A node's labels as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub region: usize,
    pub zone: usize,
    pub rack: usize,
}

pub struct World {
    pub name: &'static str,
    pub nodes: usize,
    /// The limits of a feasible pair, in microseconds.
    pub limits: [f32; 3],
    kind: Kind,
}

enum Kind {
    /// Matrices, row by row.
    Recorded {
        train: Vec<Vec<f32>>,
        test: Vec<Vec<f32>>,
        truth: Vec<f32>,
    },
    Synthetic(Box<Synthetic>),
    Made(Box<Made>),
}

impl World {
    /// A world; the seed `draw` makes the networks of [`SHAPES`].
    ///
    /// # Errors
    /// There is no such world, or its file cannot be read.
    pub fn load(name: &str, data: &Path, draw: u64) -> Result<Self> {
        match name {
            "pl490" => planetlab(data),
            "sea99" => seattle(data),
            "k8s1000" => Ok(Self::synthetic("k8s1000", 1_000)),
            "k8s5000" => Ok(Self::synthetic("k8s5000", 5_000)),
            other => {
                let shape = SHAPES.iter().find(|shape| shape.name == other);
                let shape = shape.with_context(|| {
                    let made = SHAPES.map(|shape| shape.name).join(", ");
                    format!("{other}: known are pl490, sea99, k8s1000, k8s5000, {made}")
                })?;
                Ok(Self::made(shape, Made::new(shape, draw)))
            }
        }
    }

    pub fn made(shape: &Shape, made: Made) -> Self {
        Self {
            name: shape.name,
            nodes: shape.nodes,
            limits: [200.0, 1e3, 20e3],
            kind: Kind::Made(Box::new(made)),
        }
    }

    fn synthetic(name: &'static str, nodes: usize) -> Self {
        Self {
            name,
            nodes,
            limits: [500.0, 1e3, 5e3],
            kind: Kind::Synthetic(Box::new(Synthetic::new(nodes, 7))),
        }
    }

    fn recorded(
        name: &'static str,
        nodes: usize,
        limits: [f32; 3],
        mut slices: Vec<Vec<f32>>,
    ) -> Self {
        let test = slices.split_off(slices.len() / 2);
        let truth = (0..nodes * nodes)
            .map(|at| median(&mut test.iter().map(|slice| slice[at]).collect::<Vec<_>>()))
            .collect();
        let kind = Kind::Recorded {
            train: slices,
            test,
            truth,
        };
        Self {
            name,
            nodes,
            limits,
            kind,
        }
    }

    /// The median of the period with the true values, in microseconds.
    pub fn truth(&self, a: usize, b: usize) -> f32 {
        match &self.kind {
            Kind::Recorded { truth, .. } => truth[a * self.nodes + b],
            Kind::Synthetic(world) => world.truth(a, b),
            Kind::Made(world) => world.truth(a, b),
        }
    }

    /// One sample of the learning period.
    pub fn probe(&self, a: usize, b: usize, random: &mut Random) -> f32 {
        match &self.kind {
            Kind::Recorded { train, .. } => train[random.below(train.len())][a * self.nodes + b],
            Kind::Synthetic(world) => world.sample(a, b, random),
            Kind::Made(world) => world.reported(a, b, random),
        }
    }

    /// One sample at the time of a decision.
    pub fn fresh(&self, a: usize, b: usize, random: &mut Random) -> f32 {
        match &self.kind {
            Kind::Recorded { test, .. } => test[random.below(test.len())][a * self.nodes + b],
            Kind::Synthetic(world) => world.sample(a, b, random),
            Kind::Made(world) => world.sample(a, b, random),
        }
    }

    /// A published measurement: the median of five samples, and half of their middle half in the
    /// logarithm.
    pub fn measure(&self, a: usize, b: usize, random: &mut Random) -> (f32, Option<f32>) {
        let mut five = [0.0f32; 5];
        five.fill_with(|| self.probe(a, b, random));
        let late = match &self.kind {
            Kind::Made(world) => world.late(random),
            Kind::Recorded { .. } | Kind::Synthetic(_) => 1.0,
        };
        let middle = median(&mut five);
        let [low, high] = [
            five[0] * 0.25 + five[1] * 0.75,
            five[3] * 0.75 + five[4] * 0.25,
        ];
        let spread = (high / low.max(1.0)).ln() / 2.0;
        ((middle * late).max(1.0), Some(spread))
    }

    /// Whether nodes can be judged by its reports.
    pub fn honest(&self, node: usize) -> bool {
        match &self.kind {
            Kind::Made(world) => world.honest(node),
            Kind::Recorded { .. } | Kind::Synthetic(_) => true,
        }
    }

    pub fn place(&self, node: usize) -> Option<Place> {
        match &self.kind {
            Kind::Recorded { .. } => None,
            Kind::Synthetic(world) => Some(world.place(node)),
            Kind::Made(world) => Some(world.place(node)),
        }
    }
}

/// The middle, or the mean of both middles.
pub fn median(values: &mut [f32]) -> f32 {
    values.sort_unstable_by(f32::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

fn unpack(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| format!("{}", path.display()))?;
    let mut text = String::new();
    XzReader::new(file, true)
        .read_to_string(&mut text)
        .with_context(|| format!("{}", path.display()))?;
    Ok(text)
}

fn numbers(line: &str) -> Result<Vec<f64>> {
    line.split(',')
        .map(|cell| cell.trim().parse().context("a cell that is no number"))
        .collect()
}

fn planetlab(data: &Path) -> Result<World> {
    let n = PLANETLAB;
    let text = unpack(&data.join("planetlab490_slices_us.csv.xz"))?;
    let mut slices = vec![vec![0.0f32; n * n]; 18];
    let upper = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
    let mut rows = 0;
    for (line, (a, b)) in text.lines().zip(upper) {
        for (slice, micros) in slices.iter_mut().zip(numbers(line)?) {
            slice[a * n + b] = micros as f32;
            slice[b * n + a] = micros as f32;
        }
        rows += 1;
    }
    if rows != n * (n - 1) / 2 {
        bail!("planetlab490_slices_us.csv.xz has {rows} rows");
    }
    Ok(World::recorded("pl490", n, [5e3, 20e3, 50e3], slices))
}

fn seattle(data: &Path) -> Result<World> {
    let n = SEATTLE;
    let text = unpack(&data.join("seattle99_every8th_cs.csv.xz"))?;
    let mut cells = Vec::new();
    for line in text.lines() {
        cells.extend(numbers(line)?);
    }
    let slices = cells
        .chunks_exact(n * n)
        .map(|slice| {
            let at = |a: usize, b: usize| {
                let mean = (slice[a * n + b] + slice[b * n + a]) / 2.0;
                (mean.max(SEATTLE_FLOOR_CENTISECONDS) * 1e4) as f32
            };
            (0..n * n)
                .map(|i| match (i / n, i % n) {
                    (a, b) if a == b => 0.0,
                    (a, b) => at(a, b),
                })
                .collect()
        })
        .collect();
    Ok(World::recorded("sea99", n, [100e3, 200e3, 400e3], slices))
}
