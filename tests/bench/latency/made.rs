//! Synthetic networks with what the others lack: the times of their pairs, reports and changes.

use crate::{
    random::Random,
    shapes::{Oddity, Shape},
    worlds::Place,
};

/// Milliseconds across the square in which regions are.
const SQUARE_MILLIS: f64 = 80.0;
const PROVIDERS: usize = 4;
/// How many racks lie, or have the labels of another zone.
const ODD_RACKS: usize = 3;

pub struct Made {
    nodes: usize,
    /// As the labels say.
    places: Vec<Place>,
    /// As it is.
    zones: Vec<usize>,
    regions: Vec<usize>,
    /// Microseconds, row by row.
    truth: Vec<f32>,
    noise: f64,
    /// Samples wait in queues.
    queues: bool,
    /// Part of samples that are late, and of measurements.
    stalls: [f64; 2],
    /// What a node reports over what it measured.
    lies: Vec<f32>,
}

impl Made {
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x6d61_6465);
        let places = places(shape, &mut random);
        let truth = times(shape, &places, &mut random);
        let mut made = Self {
            nodes: shape.nodes,
            zones: places.iter().map(|place| place.zone).collect(),
            regions: places.iter().map(|place| place.region).collect(),
            places,
            truth,
            noise: shape.noise,
            queues: shape.oddity == Oddity::Queues,
            stalls: match shape.oddity {
                Oddity::Stalls => [0.02, 0.033],
                _ => [0.0; 2],
            },
            lies: vec![1.0; shape.nodes],
        };
        made.misguide(shape, &mut random);
        made
    }

    fn misguide(&mut self, shape: &Shape, random: &mut Random) {
        let mut racks: Vec<usize> = self.places.iter().map(|place| place.rack).collect();
        racks.sort_unstable();
        racks.dedup();
        let odd = random.choose(racks.len(), ODD_RACKS);
        for (turn, rack) in odd.into_iter().map(|at| racks[at]).enumerate() {
            let elsewhere = self.places[random.below(self.nodes)];
            let members = (0..self.nodes).filter(|node| self.places[*node].rack == rack);
            for node in members.collect::<Vec<_>>() {
                match shape.oddity {
                    Oddity::Lies => self.lies[node] = [1.0 / 3.0, 3.0][turn % 2],
                    Oddity::Moved => {
                        self.places[node] = Place {
                            rack: 1_000 * elsewhere.zone + 900 + turn,
                            ..elsewhere
                        };
                    }
                    _ => {}
                }
            }
        }
    }

    /// The same nodes after two fifths of the zone pairs of different regions took other ways.
    pub fn rerouted(&self, seed: u64) -> Self {
        let count = 1 + self.zones.iter().max().copied().unwrap_or_default();
        let mut random = Random::new(seed ^ 0x7265_726f);
        let factors: Vec<f32> = (0..count * count)
            .map(|_| (random.unit() < 0.4, random.between(1.2, 1.8) as f32))
            .map(|(hit, factor)| if hit { factor } else { 1.0 })
            .collect();
        self.changed(|a, b, micros| {
            let (low, high) = ordered(self.zones[a], self.zones[b]);
            micros * factors[low * count + high]
        })
    }

    /// The same nodes after the first region's line to all others became longer.
    pub fn lengthened(&self, micros: f32) -> Self {
        self.changed(|a, b, before| match self.regions[a].min(self.regions[b]) {
            0 => before + micros,
            _ => before,
        })
    }

    /// With other times between regions.
    fn changed(&self, change: impl Fn(usize, usize, f32) -> f32) -> Self {
        let mut truth = self.truth.clone();
        for (at, micros) in truth.iter_mut().enumerate() {
            let (a, b) = (at / self.nodes, at % self.nodes);
            if self.regions[a] != self.regions[b] {
                *micros = change(a, b, *micros);
            }
        }
        Self {
            places: self.places.clone(),
            zones: self.zones.clone(),
            regions: self.regions.clone(),
            lies: self.lies.clone(),
            truth,
            ..*self
        }
    }

    pub fn place(&self, node: usize) -> Place {
        self.places[node]
    }

    /// The region in which a node is, whatever its labels say.
    pub fn region(&self, node: usize) -> usize {
        self.regions[node]
    }

    pub fn honest(&self, node: usize) -> bool {
        self.lies[node] == 1.0
    }

    pub fn truth(&self, a: usize, b: usize) -> f32 {
        self.truth[a * self.nodes + b]
    }

    /// What `a` says of a sample.
    pub fn reported(&self, a: usize, b: usize, random: &mut Random) -> f32 {
        self.sample(a, b, random) * self.lies[a]
    }

    pub fn sample(&self, a: usize, b: usize, random: &mut Random) -> f32 {
        if self.queues {
            return self.truth(a, b) * queued(self.noise, random);
        }
        let factor = (self.noise * random.normal()).exp() as f32;
        self.truth(a, b) * factor * late(self.stalls[0], random)
    }

    /// The factor of a measurement whose samples are all late.
    pub fn late(&self, random: &mut Random) -> f32 {
        late(self.stalls[1], random)
    }
}

/// The factor of a sample that waits in queues, seldom in a long one; its median is 1.
fn queued(mean: f64, random: &mut Random) -> f32 {
    let mut wait = random.exponential(mean);
    if random.unit() < 0.05 {
        wait += random.exponential(3.0);
    }
    ((1.0 + wait) / (1.0 + 0.72 * mean)) as f32
}

fn late(part: f64, random: &mut Random) -> f32 {
    match random.unit() < part {
        true => 1.5 + random.exponential(6.0) as f32,
        false => 1.0,
    }
}

fn ordered(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

fn places(shape: &Shape, random: &mut Random) -> Vec<Place> {
    let flat = shape.oddity.is_flat();
    let zones = if flat { 1 } else { shape.zones };
    let mut filled = vec![0; shape.regions * zones];
    let place = |_| {
        let region = random.below(shape.regions);
        let zone = region * zones + random.below(zones);
        let rack = 1_000 * zone + filled[zone] / shape.rack;
        filled[zone] += 1;
        Place { region, zone, rack }
    };
    (0..shape.nodes).map(place).collect()
}

/// The time of every pair.
fn times(shape: &Shape, places: &[Place], random: &mut Random) -> Vec<f32> {
    let n = places.len();
    let zones = shape.regions * shape.zones;
    let detours = shape.oddity == Oddity::Detours;
    let between = zone_times(shape, detours, random);
    // Access lines; one in 25 is slow.
    let heights: Vec<f64> = (0..n)
        .map(|_| {
            let slow = if random.unit() < 0.04 { 200.0 } else { 0.0 };
            random.exponential(15.0) + random.exponential(15.0) + random.exponential(slow)
        })
        .collect();
    let anycast: Vec<bool> = (0..n)
        .map(|_| random.unit() < 0.05 && shape.oddity == Oddity::Anycast)
        .collect();
    let providers: Vec<usize> = (0..n).map(|_| random.below(PROVIDERS)).collect();
    let regions = shape.regions;
    let peerings: Vec<f64> = (0..regions * regions * PROVIDERS * PROVIDERS)
        .map(|_| detour(detours, random))
        .collect();
    let mut all = vec![0.0f32; n * n];
    for (a, b) in (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b))) {
        let (from, to) = (places[a], places[b]);
        let (low, high) = ordered(from.zone, to.zone);
        let near = from.region == to.region;
        let (low_region, high_region) = ordered(from.region, to.region);
        let (one, other) = ordered(providers[a], providers[b]);
        let peering = ((low_region * regions + high_region) * PROVIDERS + one) * PROVIDERS + other;
        let path = match () {
            () if anycast[a] => between[to.zone * zones + to.zone],
            () if anycast[b] => between[from.zone * zones + from.zone],
            () if shape.oddity.is_flat() => 80.0,
            () if from.rack == to.rack => 0.5 * between[low * zones + high],
            () if near => between[low * zones + high],
            () => between[low * zones + high] * peerings[peering],
        };
        let spread = match () {
            () if shape.oddity == Oddity::Queues => 0.2,
            () if near => 0.08,
            () => 0.01,
        };
        let micros = path * (spread * random.normal()).exp() + heights[a] + heights[b];
        all[a * n + b] = micros as f32;
        all[b * n + a] = micros as f32;
    }
    all
}

/// Microseconds between zones, the lower one first.
fn zone_times(shape: &Shape, detours: bool, random: &mut Random) -> Vec<f64> {
    let zones = shape.regions * shape.zones;
    let at: Vec<[f64; 2]> = (0..shape.regions)
        .map(|_| [random.unit(), random.unit()])
        .collect();
    let mut between = vec![0.0; zones * zones];
    for (low, high) in (0..zones).flat_map(|low| (low..zones).map(move |high| (low, high))) {
        let (here, there) = (at[low / shape.zones], at[high / shape.zones]);
        let apart = (here[0] - there[0]).hypot(here[1] - there[1]);
        between[low * zones + high] = match () {
            () if low == high => random.between(60.0, 250.0),
            () if here == there => random.between(300.0, 1_500.0) * detour(detours, random),
            () => {
                let millis = 4.0 + SQUARE_MILLIS * apart + random.between(-1.0, 1.0);
                1e3 * millis * detour(detours, random)
            }
        };
    }
    between
}

/// The factor of one path in four.
fn detour(some: bool, random: &mut Random) -> f64 {
    match some && random.unit() < 0.25 {
        true => random.between(1.4, 3.0),
        false => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{CHANGING, SHAPES, shape};

    #[test]
    fn networks_are_symmetric_and_the_same_for_a_seed() {
        for shape in &SHAPES {
            let [made, again, other] = [7, 7, 8].map(|seed| Made::new(shape, seed));
            assert_eq!(made.truth, again.truth, "{}", shape.name);
            assert_ne!(made.truth, other.truth, "{}", shape.name);
            for (a, b) in (0..shape.nodes).flat_map(|a| (0..a).map(move |b| (a, b))) {
                assert_eq!(made.truth(a, b), made.truth(b, a), "{}", shape.name);
                assert!(made.truth(a, b) > 1.0, "{}", shape.name);
            }
        }
    }

    #[test]
    fn whole_racks_lie_or_have_moved() {
        let shape = |oddity| shape("odd", 360, 4, oddity);
        let lies = Made::new(&shape(Oddity::Lies), 7);
        let moved = Made::new(&shape(Oddity::Moved), 7);
        let racks = |nodes: Vec<usize>| {
            let mut racks: Vec<usize> = nodes.iter().map(|node| lies.place(*node).rack).collect();
            racks.sort_unstable();
            racks.dedup();
            racks.len()
        };
        let all = 0..shape(Oddity::None).nodes;
        let liars: Vec<usize> = all.clone().filter(|node| !lies.honest(*node)).collect();
        assert_eq!(racks(liars), ODD_RACKS);
        let misled: Vec<usize> = all
            .filter(|node| moved.place(*node).rack % 1_000 >= 900)
            .collect();
        assert_eq!(racks(misled), ODD_RACKS);
    }

    #[test]
    fn changes_are_between_regions_alone() {
        let made = Made::new(&CHANGING, 7);
        let line = made.lengthened(30e3);
        let other = made.rerouted(7);
        let mut rerouted = 0;
        for (a, b) in (0..made.nodes).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let before = made.truth(a, b);
            let regions = [a, b].map(|node| made.region(node));
            let longer = regions[0] != regions[1] && regions.contains(&0);
            let expected = if longer { before + 30e3 } else { before };
            assert_eq!(line.truth(a, b), expected);
            assert_eq!(other.truth(a, b), other.truth(b, a));
            if other.truth(a, b) != before {
                assert_ne!(regions[0], regions[1]);
                rerouted += 1;
            }
        }
        let part = f64::from(rerouted) / (made.nodes * (made.nodes - 1) / 2) as f64;
        assert!((0.2..0.45).contains(&part), "{part}");
    }
}
