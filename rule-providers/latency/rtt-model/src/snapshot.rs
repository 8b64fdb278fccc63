//! The binary format of a model's snapshot: the nodes, their samples, the coordinates (also those of
//! fits without the held-out pairs), and a checksum, in little-endian words of four bytes. The
//! caller stores the version of the format.

use crate::{
    Model, NodeId, Options,
    coords::{HEIGHT, Place},
    hash,
    last_fit::{LastFit, Places},
    network::{Location, Node},
};

impl Model {
    /// Returns the nodes, samples and coordinates as bytes for [`Model::restore`]: about 2.7 MB at
    /// 5,000 nodes with 32 targets each.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut words = vec![self.nodes.len() as u32];
        for node in &self.nodes {
            let Location { region, zone, rack } = node.location;
            words.extend([node.key, region, zone, rack].into_iter().flat_map(halves));
        }
        for samples in &self.samples {
            words.push(samples.len() as u32);
            for sample in samples {
                let spread = sample.spread.unwrap_or(0.0);
                words.extend([sample.to, sample.micros.to_bits(), spread.to_bits()]);
            }
        }
        if let Some(last) = &self.last {
            words.extend([last.scale.to_bits(), last.noisy.into()]);
            for places in [&last.places].into_iter().chain(&last.unseen) {
                words.push(places.len() as u32);
                for place in places {
                    words.push(place.is_some().into());
                    words.extend(place.iter().flatten().map(|x| x.to_bits()));
                }
            }
        }
        words.extend(checksum(&words));
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// Returns the model of a snapshot; `None` if the bytes were cut short or changed. Nodes have the
    /// same numbers as before: see [`Model::node`].
    pub fn restore(options: Options, bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks() else {
            return None;
        };
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let (content, sum) = words.split_last_chunk()?;
        let words = &mut Words(content);
        (*sum == checksum(content)).then_some(())?;
        let count = words.word()?;
        let nodes = (0..count).map(|_| {
            let key = words.long()?;
            let (region, zone, rack) = (words.long()?, words.long()?, words.long()?);
            let location = Location { region, zone, rack };
            Some(Node { key, location })
        });
        let mut model = Self::rebuild(options, nodes.collect::<Option<_>>()?)?;
        for from in (0..count).map(NodeId) {
            for _ in 0..words.word()? {
                let (to, micros, spread) = (NodeId(words.word()?), words.float()?, words.float()?);
                let spread = Some(spread).filter(|spread| *spread > 0.0);
                model.observe(from, to, micros, spread).then_some(())?;
            }
        }
        if !words.0.is_empty() {
            let scale = words.float().filter(|scale| *scale > 0.0)?;
            let noisy = words.word()? != 0;
            let places = words.places(count)?;
            let mut unseen = Vec::new();
            while !words.0.is_empty() {
                unseen.push(words.places(count)?);
            }
            model.last = Some(LastFit {
                scale,
                noisy,
                places,
                unseen,
                ..LastFit::default()
            });
        }
        Some(model)
    }
}

fn halves(long: u64) -> [u32; 2] {
    [long as u32, (long >> 32) as u32]
}

fn checksum(words: &[u32]) -> [u32; 2] {
    let mix = |sum, word: &u32| hash::mix(sum ^ u64::from(*word));
    halves(words.iter().fold(words.len() as u64, mix))
}

/// The words that are still to be read.
struct Words<'a>(&'a [u32]);

impl Words<'_> {
    fn word(&mut self) -> Option<u32> {
        self.0.split_off_first().copied()
    }

    fn long(&mut self) -> Option<u64> {
        let [low, high] = [self.word()?, self.word()?].map(u64::from);
        Some(high << 32 | low)
    }

    fn float(&mut self) -> Option<f32> {
        self.word().map(f32::from_bits).filter(|x| x.is_finite())
    }

    /// Reads the places of at most `nodes` nodes.
    fn places(&mut self, nodes: u32) -> Option<Places> {
        let count = self.word().filter(|count| *count <= nodes)?;
        let places = (0..count).map(|_| {
            if self.word()? == 0 {
                return Some(None);
            }
            // True coordinates are a few units.
            let mut place = Place::default();
            for x in &mut place {
                *x = self.float().filter(|x| x.abs() < 1e6)?;
            }
            place[HEIGHT] = place[HEIGHT].clamp(-20.0, 5.0);
            Some(Some(place))
        });
        places.collect()
    }
}
