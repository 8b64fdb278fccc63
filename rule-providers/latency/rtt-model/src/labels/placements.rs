use super::{NodeId, Place};

/// No place, rack or class.
pub(super) const NONE: u32 = u32::MAX;

/// The placement of a node. `place` is a (region, zone), `rack` is unique
/// over all zones; `NONE` where unknown, all three for a node without labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub place: u32,
    pub region: u32,
    pub rack: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodePlacements {
    spots: Vec<Placement>,
    places: Vec<Place>,
    regions: Vec<u32>,
}

impl NodePlacements {
    pub fn new(nodes: &[Place]) -> Self {
        let known = || nodes.iter().filter(|p| **p != Place::default());
        // A region as a whole is a place too, for nodes whose zone is not known.
        let zones = known().map(|p| Place { rack: None, ..*p });
        let places = unique(zones.chain(known().map(|p| Place {
            region: p.region,
            ..Place::default()
        })));
        let regions = unique(known().map(|p| p.region));
        let racks = unique(known().filter(|p| p.rack.is_some()).copied());
        let spots = nodes
            .iter()
            .map(|p| match number(&places, &Place { rack: None, ..*p }) {
                NONE => Placement {
                    place: NONE,
                    region: NONE,
                    rack: NONE,
                },
                _ if *p == Place::default() => Placement {
                    place: NONE,
                    region: NONE,
                    rack: NONE,
                },
                place => Placement {
                    place,
                    region: number(&regions, &p.region),
                    rack: number(&racks, p),
                },
            });
        let spots = spots.collect();
        let regions = places.iter().map(|p| number(&regions, &p.region)).collect();
        Self {
            spots,
            places,
            regions,
        }
    }

    /// `None` for a node without labels.
    pub fn placement(&self, node: NodeId) -> Option<Placement> {
        self.spots
            .get(node.0 as usize)
            .copied()
            .filter(|s| s.place != NONE)
    }

    pub fn put(&mut self, node: NodeId, place: u32) {
        let there = self.placement_in(place);
        if let Some(spot) = self.spots.get_mut(node.0 as usize) {
            *spot = there;
        }
    }

    /// A placement in a place, rack unknown.
    pub fn placement_in(&self, place: u32) -> Placement {
        Placement {
            place,
            region: self.region(place),
            rack: NONE,
        }
    }

    pub fn places(&self) -> u32 {
        self.places.len() as u32
    }

    pub fn region(&self, place: u32) -> u32 {
        self.regions.get(place as usize).copied().unwrap_or(NONE)
    }

    pub fn labels(&self, place: u32) -> Place {
        self.places.get(place as usize).copied().unwrap_or_default()
    }

    /// The place that stands for the region of this one.
    pub fn whole_region(&self, place: u32) -> u32 {
        let region = Place {
            region: self.labels(place).region,
            ..Place::default()
        };
        number(&self.places, &region)
    }

    pub fn is_zone(&self, place: u32) -> bool {
        self.labels(place).zone.is_some()
    }
}

fn unique<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = items.collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn number<T: Ord>(sorted: &[T], item: &T) -> u32 {
    sorted.binary_search(item).map_or(NONE, |at| at as u32)
}
