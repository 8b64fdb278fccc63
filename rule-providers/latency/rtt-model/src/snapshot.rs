//! The binary format of a model's snapshot: a header, the nodes, their samples by target (targets
//! as differences, in LEB128), the coordinates (also those of fits without the held-out pairs), and
//! a checksum. Numbers of fixed size are little-endian.

use std::fmt;

use crate::{
    Model, Options,
    coords::{Coords, POINT_DIMENSIONS},
    hash,
    model::{Node, Places},
    tuning::TUNING,
};

const MAGIC: [u8; 4] = *b"trtt";
const VERSION: u8 = 4;
/// The byte before places.
const PLACES_TAG: u8 = 1;
/// The byte before places of noisy samples.
const NOISY_PLACES_TAG: u8 = 2;
/// The byte that stands for no places.
const NO_PLACES_TAG: u8 = 0;
/// The spread that stands for an unknown one.
const UNKNOWN_SPREAD: f32 = 0.0;
/// The upper bound of a coordinate's absolute value; true ones are a few units.
const MAX_COORDINATE: f32 = 1e6;

/// The reason why bytes are not a snapshot that can be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// The bytes are not a snapshot of a model.
    Foreign,
    /// The snapshot has another version of the format, which is given.
    Version(u8),
    /// The snapshot is cut short, or was changed since it was written.
    Damaged,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => write!(f, "not a snapshot of round-trip times"),
            Self::Version(found) => {
                write!(
                    f,
                    "a snapshot of version {found}; this reads version {VERSION}"
                )
            }
            Self::Damaged => write!(f, "the snapshot is cut short or was changed"),
        }
    }
}

impl std::error::Error for RestoreError {}

impl Model {
    /// Returns the nodes, samples and coordinates as bytes for [`Model::restore`]: about 2.2 MB at
    /// 5,000 nodes with 32 targets each.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.push(VERSION);
        varint(&mut out, self.nodes.len() as u32);
        for node in &self.nodes {
            out.extend(node.key.to_le_bytes());
            if node.present() {
                for part in [node.region, node.zone, node.rack] {
                    out.extend(part.to_le_bytes());
                }
            }
        }
        for samples in &self.samples {
            varint(&mut out, samples.len() as u32);
            let mut last = 0;
            for sample in samples {
                varint(&mut out, sample.to - last);
                last = sample.to;
                out.extend(sample.micros.to_le_bytes());
                out.extend(sample.spread.unwrap_or(UNKNOWN_SPREAD).to_le_bytes());
            }
        }
        write_places(&mut out, self.places.as_ref());
        for places in &self.unseen {
            write_places(&mut out, Some(places));
        }
        write_places(&mut out, None);
        let sum = checksum(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Returns the model of a whole snapshot of this version. Nodes have the same numbers as
    /// before: see [`Model::node`].
    pub fn restore(options: Options, bytes: &[u8]) -> Result<Self, RestoreError> {
        let body = bytes.strip_prefix(&MAGIC).ok_or(RestoreError::Foreign)?;
        match body.first() {
            Some(&VERSION) => {}
            Some(&other) => return Err(RestoreError::Version(other)),
            None => return Err(RestoreError::Damaged),
        }
        let split = bytes.len().checked_sub(8).ok_or(RestoreError::Damaged)?;
        let (content, sum) = bytes.split_at(split);
        if sum != checksum(content).to_le_bytes() {
            return Err(RestoreError::Damaged);
        }
        let mut reader = Reader(content.get(MAGIC.len() + 1..).unwrap_or_default());
        let model = read(options, &mut reader).ok_or(RestoreError::Damaged)?;
        if reader.0.is_empty() {
            Ok(model)
        } else {
            Err(RestoreError::Damaged)
        }
    }
}

fn read(options: Options, reader: &mut Reader<'_>) -> Option<Model> {
    let n = reader.count(8)?;
    let mut nodes = Vec::with_capacity(n);
    for _ in 0..n {
        let key = reader.long()?;
        nodes.push(match key {
            0 => Node::default(),
            key => Node {
                key,
                region: reader.long()?,
                zone: reader.long()?,
                rack: reader.long()?,
            },
        });
    }
    let mut model = Model::rebuild(options, nodes)?;
    for from in 0..n {
        let mut to = 0u32;
        for _ in 0..reader.count(9)? {
            to = to.checked_add(reader.varint()?)?;
            let micros = reader.float()?;
            let spread = Some(reader.float()?).filter(|spread| *spread != UNKNOWN_SPREAD);
            let (from, to) = (crate::NodeId(from as u32), crate::NodeId(to));
            model.observe(from, to, micros, spread).then_some(())?;
        }
    }
    let Some(places) = read_places(reader, n)? else {
        return reader.byte()?.eq(&NO_PLACES_TAG).then_some(model);
    };
    model.places = Some(places);
    while let Some(places) = read_places(reader, n)? {
        (model.unseen.len() < TUNING.held_out_folds).then_some(())?;
        model.unseen.push(places);
    }
    Some(model)
}

fn write_places(out: &mut Vec<u8>, places: Option<&Places>) {
    let Some(places) = places else {
        out.push(NO_PLACES_TAG);
        return;
    };
    out.push(if places.noisy {
        NOISY_PLACES_TAG
    } else {
        PLACES_TAG
    });
    out.extend(places.scale.to_le_bytes());
    varint(out, places.placed.len() as u32);
    for (i, placed) in places.placed.iter().enumerate() {
        out.push(u8::from(*placed));
        write_place(out, &places.coords, i);
    }
}

/// Reads places: `None` if the bytes are damaged, `Some(None)` if they stand for no places.
fn read_places(reader: &mut Reader<'_>, nodes: usize) -> Option<Option<Places>> {
    let noisy = match reader.byte()? {
        NO_PLACES_TAG => return Some(None),
        kind @ (PLACES_TAG | NOISY_PLACES_TAG) => kind == NOISY_PLACES_TAG,
        _ => return None,
    };
    let scale = reader.float().filter(|s| *s > 0.0)?;
    let count = reader.count(1 + 4 * (POINT_DIMENSIONS + 1))?;
    (count <= nodes).then_some(())?;
    let mut places = Places {
        scale,
        coords: Coords::default(),
        placed: Vec::with_capacity(count),
        noisy,
        components: Vec::new(),
    };
    for _ in 0..count {
        places.placed.push(reader.byte()? != 0);
        read_place(reader, &mut places.coords)?;
    }
    Some(Some(places))
}

fn write_place(out: &mut Vec<u8>, coords: &Coords, i: usize) {
    for x in coords.points[i] {
        out.extend(x.to_le_bytes());
    }
    out.extend(coords.log_heights[i].to_le_bytes());
}

fn read_place(reader: &mut Reader<'_>, coords: &mut Coords) -> Option<()> {
    let mut point = [0.0; POINT_DIMENSIONS];
    for x in &mut point {
        *x = reader.float().filter(|x| x.abs() < MAX_COORDINATE)?;
    }
    coords.points.push(point);
    coords.log_heights.push(reader.float()?.clamp(-20.0, 5.0));
    Some(())
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let word = chunk
            .iter()
            .rev()
            .fold(0u64, |w, b| (w << 8) | u64::from(*b));
        sum = hash::mix(sum ^ word);
    }
    sum
}

fn varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|b| b[0])
    }

    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn float(&mut self) -> Option<f32> {
        self.take()
            .map(f32::from_le_bytes)
            .filter(|x| x.is_finite())
    }

    fn varint(&mut self) -> Option<u32> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).ok();
            }
        }
        None
    }

    fn count(&mut self, least: usize) -> Option<usize> {
        let count = self.varint()? as usize;
        (count <= self.0.len() / least).then_some(count)
    }
}
