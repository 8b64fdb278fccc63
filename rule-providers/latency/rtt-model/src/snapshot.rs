//! The bytes of a model: a header, nodes, their samples by target (targets as differences, in
//! LEB128), the coordinates (also those without
//! pairs that are held out), and a checksum. Little-endian.

use std::fmt;

use crate::{
    Model, Options,
    coords::{Coords, D},
    hash,
    model::{Node, Places},
    tuning::TUNING,
};

const MAGIC: [u8; 4] = *b"trtt";
const VERSION: u8 = 4;
/// The byte before places, before those of noisy samples, and in place of any.
const PLACED: u8 = 1;
const PLACED_NOISY: u8 = 2;
const UNPLACED: u8 = 0;
/// A spread that is not known.
const UNKNOWN: f32 = 0.0;
/// Coordinates are a few units.
const FARTHEST: f32 = 1e6;

/// Why bytes are not a snapshot that can be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// Not a snapshot of a model.
    Foreign,
    /// Another version of the format, by number.
    Version(u8),
    /// Cut short, or changed since it was written.
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
    /// All state, for [`Model::restore`]; some 2.2 MB at 5,000 nodes of 32 targets.
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
                out.extend(sample.spread.unwrap_or(UNKNOWN).to_le_bytes());
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

    /// The model of a whole snapshot of this version. Nodes keep their numbers: see
    /// [`Model::node`].
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
        match reader.0.is_empty() {
            true => Ok(model),
            false => Err(RestoreError::Damaged),
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
            let spread = Some(reader.float()?).filter(|spread| *spread != UNKNOWN);
            let (from, to) = (crate::NodeId(from as u32), crate::NodeId(to));
            model.observe(from, to, micros, spread).then_some(())?;
        }
    }
    let Some(places) = read_places(reader, n)? else {
        return reader.byte()?.eq(&UNPLACED).then_some(model);
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
        out.push(UNPLACED);
        return;
    };
    out.push(if places.noisy { PLACED_NOISY } else { PLACED });
    out.extend(places.scale.to_le_bytes());
    varint(out, places.placed.len() as u32);
    for (i, placed) in places.placed.iter().enumerate() {
        out.push(u8::from(*placed));
        write_place(out, &places.coords, i);
    }
}

/// `None`: damaged; within, `None` where there are no places.
fn read_places(reader: &mut Reader<'_>, nodes: usize) -> Option<Option<Places>> {
    let noisy = match reader.byte()? {
        UNPLACED => return Some(None),
        kind @ (PLACED | PLACED_NOISY) => kind == PLACED_NOISY,
        _ => return None,
    };
    let scale = reader.float().filter(|s| *s > 0.0)?;
    let count = reader.count(1 + 4 * (D + 1))?;
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
    let mut point = [0.0; D];
    for x in &mut point {
        *x = reader.float().filter(|x| x.abs() < FARTHEST)?;
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
