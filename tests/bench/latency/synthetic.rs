//! A synthetic cluster of five regions of three zones each, with racks of 40. Distances between
//! regions are AWS's of 2022, between zones IBM's VPC zones', within a zone 60 to 250 us. Every
//! node has a height, every pair a constant residual; samples are as noisy as pings between 52
//! AWS nodes.

use crate::{random::Random, worlds::Place};

const REGIONS: usize = 5;
const ZONES: usize = 3;
const RACK: usize = 40;

/// Median milliseconds between us-east-1, us-west-2, eu-central-1, eu-west-1 and
/// ap-northeast-1, 2022 (cloudping.co).
const REGION_MILLIS: [[f32; REGIONS]; REGIONS] = [
    [0.0, 69.66, 90.62, 68.11, 146.47],
    [69.66, 0.0, 145.77, 124.47, 99.2],
    [90.62, 145.77, 0.0, 25.86, 225.14],
    [68.11, 124.47, 25.86, 0.0, 201.97],
    [146.47, 99.2, 225.14, 201.97, 0.0],
];

/// Mean microseconds between a region's zones 0-1, 0-2 and 1-2: IBM Cloud's
/// published averages for Washington, Dallas, Frankfurt, London and Tokyo, 2026.
const ZONE_MICROS: [[f32; 3]; REGIONS] = [
    [690.0, 740.0, 280.0],
    [2010.0, 2160.0, 1430.0],
    [750.0, 680.0, 460.0],
    [1390.0, 740.0, 670.0],
    [1460.0, 980.0, 1640.0],
];

/// A sample over its pair's median: quantiles of 312 pairs' 240 pings each
/// between 52 AWS nodes (input-output-hk/ouroboros-leios), within and across regions.
const QUANTILES: [f64; 12] = [
    0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0,
];
const NOISE_WITHIN: [f64; 12] = [
    0.5225, 0.817, 0.8835, 0.913, 0.9581, 1.0, 1.0425, 1.0959, 1.1469, 1.3864, 2.504, 10.0369,
];
const NOISE_ACROSS: [f64; 12] = [
    0.9901, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.005, 1.0145, 1.0435,
];

pub struct Synthetic {
    seed: u64,
    places: Vec<Place>,
    heights: Vec<f32>,
    /// Microseconds by which zones of different regions differ from their regions.
    zone_offsets: Vec<f32>,
}

impl Synthetic {
    pub fn new(nodes: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut filled = [0; REGIONS * ZONES];
        let places = (0..nodes)
            .map(|_| {
                let region = random.below(REGIONS);
                let zone = region * ZONES + random.below(ZONES);
                let rack = 1000 * zone + filled[zone] / RACK;
                filled[zone] += 1;
                Place { region, zone, rack }
            })
            .collect();
        let slow = random.exponential(150.0);
        let heights = (0..nodes)
            .map(|_| {
                // A gamma of shape 2, and one node in 33 is slow.
                let height = random.exponential(12.0) + random.exponential(12.0);
                let more = if random.unit() < 0.03 { slow } else { 0.0 };
                (height + more) as f32
            })
            .collect();
        let all = REGIONS * ZONES;
        let zone_offsets = (0..all * all)
            .map(|_| random.between(-1000.0, 1000.0) as f32)
            .collect();
        Self {
            seed,
            places,
            heights,
            zone_offsets,
        }
    }

    pub fn place(&self, node: usize) -> Place {
        self.places[node]
    }

    pub fn truth(&self, a: usize, b: usize) -> f32 {
        if a == b {
            return 0.0;
        }
        let (a, b) = (a.min(b), a.max(b));
        let (here, there) = (self.places[a], self.places[b]);
        let (low, high) = (here.zone.min(there.zone), here.zone.max(there.zone));
        let inside = match () {
            () if here.rack == there.rack => 45.0,
            () if low == high => 90.0,
            () => 60.0,
        };
        let across = here.region != there.region;
        let between = if across {
            let offset = self.zone_offsets[low * REGIONS * ZONES + high];
            1e3 * REGION_MILLIS[here.region][there.region] + offset
        } else if low == high {
            0.0
        } else {
            // 0-1, 0-2, 1-2.
            ZONE_MICROS[here.region][low % ZONES + high % ZONES - 1]
        };
        let own = Random::new(self.seed ^ ((a as u64) << 32 | b as u64)).normal() as f32;
        let spread = if across { 0.004 } else { 0.08 };
        (between + inside) * (spread * own).exp() + self.heights[a] + self.heights[b]
    }

    pub fn sample(&self, a: usize, b: usize, random: &mut Random) -> f32 {
        let noise = match self.places[a].region == self.places[b].region {
            true => &NOISE_WITHIN,
            false => &NOISE_ACROSS,
        };
        let at = random.unit();
        let above = QUANTILES
            .iter()
            .position(|q| *q > at)
            .unwrap_or(QUANTILES.len() - 1);
        let (from, to) = (QUANTILES[above - 1], QUANTILES[above]);
        let part = (at - from) / (to - from);
        let factor = noise[above - 1] + part * (noise[above] - noise[above - 1]);
        self.truth(a, b) * factor as f32
    }
}
