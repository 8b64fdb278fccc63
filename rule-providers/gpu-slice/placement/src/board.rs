//! What each node would cost each shape, kept from question to question: a change
//! of one node costs that node's work alone.

use std::{collections::HashMap, sync::Arc};

use crate::{
    policy::{Place, Policy, Seen},
    popularity::TaskType,
    room::{Room, Short},
    shape::{Kind, Shape},
    types::Types,
};

/// So many shapes' costs are kept by default; the one asked longest ago goes first.
const SHAPES: usize = 256;

/// Why a node cannot serve a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No room is known by this number.
    Unknown,
    /// Its cards are of another lane or model.
    Kind,
    Short(Short),
}

#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    version: u32,
    epoch: u32,
    place: Option<Place>,
}

#[derive(Debug)]
struct Asked {
    shape: Arc<Shape>,
    allowed: Vec<bool>,
    kept: Vec<Kept>,
    at: u64,
}

#[derive(Debug, Default)]
struct Node {
    room: Option<Room>,
    version: u32,
    position: f64,
    base: Box<[f64]>,
}

/// The rooms of all nodes under one policy, by numbers that the caller gives out.
#[derive(Debug)]
pub struct Board {
    policy: Box<dyn Policy>,
    kinds: Vec<Kind>,
    classes: Vec<(TaskType, f64)>,
    nodes: Vec<Node>,
    shapes: HashMap<Arc<Shape>, usize>,
    asked: Vec<Asked>,
    most_shapes: usize,
    clock: u64,
    epoch: u32,
    /// How often all nodes were told of.
    told: u32,
}

impl Board {
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            kinds: Vec::new(),
            classes: Vec::new(),
            nodes: Vec::new(),
            shapes: HashMap::new(),
            asked: Vec::new(),
            most_shapes: SHAPES,
            clock: 0,
            epoch: 0,
            told: 0,
        }
    }

    /// Keeps the costs of at least so many shapes.
    pub fn keeping(mut self, shapes: usize) -> Self {
        self.most_shapes = self.most_shapes.max(shapes);
        self
    }

    /// The number of a kind, for [`Room::new`].
    pub fn kind(&mut self, kind: &Kind) -> u16 {
        if let Some(known) = self.kinds.iter().position(|k| k == kind) {
            return known as u16;
        }
        self.kinds.push(kind.clone());
        for asked in &mut self.asked {
            asked.allowed.push(asked.shape.allows(kind));
        }
        let classes = std::mem::take(&mut self.classes);
        self.plan_for(classes);
        (self.kinds.len() - 1) as u16
    }

    /// What the policy cannot tell apart: [`Policy::resolution`].
    pub fn resolution(&self) -> i64 {
        self.policy.resolution()
    }

    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The distribution to plan for: every kept cost is void.
    pub fn plan_for(&mut self, classes: Vec<(TaskType, f64)>) {
        self.policy.plan_for(Types::new(&classes, &self.kinds));
        self.classes = classes;
        self.tell_all();
    }

    fn tell_all(&mut self) {
        self.told = self.told.wrapping_add(1);
        for node in &mut self.nodes {
            if let Some(room) = &node.room {
                node.base = self.policy.base(room);
                self.policy
                    .moved(None, Some(Seen::new(room, &node.base, node.position)));
            }
            node.version = node.version.wrapping_add(1);
        }
    }

    /// The distribution that is planned for.
    pub fn classes(&self) -> &[(TaskType, f64)] {
        &self.classes
    }

    pub fn room(&self, node: usize) -> Option<&Room> {
        self.nodes.get(node)?.room.as_ref()
    }

    pub fn rooms<'a>(&'a self) -> impl Iterator<Item = (usize, &'a Room)> {
        let room = |(i, node): (usize, &'a Node)| Some((i, node.room.as_ref()?));
        self.nodes.iter().enumerate().filter_map(room)
    }

    /// Where a node stands in the order that policies may prefer nodes by, from 0
    /// (first) to 1. To be told before its room.
    pub fn stand(&mut self, node: usize, position: f64) {
        let at = self.node(node);
        if at.position != position {
            at.position = position;
            at.version = at.version.wrapping_add(1);
        }
    }

    fn node(&mut self, node: usize) -> &mut Node {
        if self.nodes.len() <= node {
            self.nodes.resize_with(node + 1, Node::default);
        }
        &mut self.nodes[node]
    }

    /// A node's room is this now; `None`: the node has gone.
    pub fn set(&mut self, node: usize, room: Option<Room>) {
        self.node(node);
        let at = &mut self.nodes[node];
        if at.room == room {
            return;
        }
        let base = room
            .as_ref()
            .map_or_else(Box::default, |r| self.policy.base(r));
        let before = at
            .room
            .as_ref()
            .map(|r| Seen::new(r, &at.base, at.position));
        let after = room.as_ref().map(|r| Seen::new(r, &base, at.position));
        self.policy.moved(before, after);
        at.base = base;
        at.version = at.version.wrapping_add(1);
        at.room = room;
    }

    /// What the node would cost the shape, and where on it.
    ///
    /// # Errors
    /// The node cannot serve it, and why.
    pub fn place(&mut self, shape: &Shape, node: usize) -> Result<Place, Refusal> {
        let asked = self.ask(shape);
        self.place_asked(asked, node)
    }

    /// The same for a shape that [`Board::ask`] gave the number of.
    ///
    /// # Errors
    /// The node cannot serve it, and why.
    pub fn place_asked(&mut self, asked: usize, node: usize) -> Result<Place, Refusal> {
        match self.kept(asked, node) {
            Some(place) => Ok(place),
            None => Err(self.refusal(asked, node)),
        }
    }

    /// The same for a room that is not on the board: what if the node's were so?
    ///
    /// # Errors
    /// It cannot serve the shape, and why.
    pub fn place_in(&self, shape: &Shape, node: usize, room: &Room) -> Result<Place, Refusal> {
        let kind = self.kinds.get(usize::from(room.kind()));
        if !kind.is_some_and(|k| shape.allows(k)) {
            return Err(Refusal::Kind);
        }
        room.fits(shape).map_err(Refusal::Short)?;
        let position = self.nodes.get(node).map_or(1.0, |n| n.position);
        let base = self.policy.base(room);
        Ok(self.policy.place(Seen::new(room, &base, position), shape))
    }

    /// The cheapest node, the first of equals.
    pub fn best(&mut self, shape: &Shape) -> Option<(usize, Place)> {
        self.best_of(shape, |_| false)
    }

    /// The cheapest node. Where one is as cheap as the one held, the nth such, `replaces`
    /// says whether it takes its place.
    pub fn best_of(
        &mut self,
        shape: &Shape,
        mut replaces: impl FnMut(u32) -> bool,
    ) -> Option<(usize, Place)> {
        let asked = self.ask(shape);
        let mut best: Option<(usize, Place)> = None;
        let mut equals = 1;
        for node in 0..self.nodes.len() {
            let Some(place) = self.kept(asked, node) else {
                continue;
            };
            match &best {
                Some((_, held)) if held.cost < place.cost => {}
                Some((_, held)) if held.cost == place.cost => {
                    equals += 1;
                    if replaces(equals) {
                        best = Some((node, place));
                    }
                }
                _ => {
                    equals = 1;
                    best = Some((node, place));
                }
            }
        }
        best
    }

    /// As long as it is the same, a node whose room and position have not changed
    /// costs each shape the same.
    pub fn stamp(&mut self) -> (u32, u32) {
        if self.policy.renew() {
            self.tell_all();
        }
        self.epoch = self.policy.epoch();
        (self.told, self.epoch)
    }

    /// The number of a shape, for many questions about it; good until a room changes
    /// or another shape is asked.
    pub fn ask(&mut self, shape: &Shape) -> usize {
        self.stamp();
        self.clock += 1;
        let clock = self.clock;
        if let Some(&at) = self.shapes.get(shape) {
            self.asked[at].at = clock;
            return at;
        }
        let shape = Arc::new(shape.clone());
        let new = Asked {
            allowed: self.kinds.iter().map(|k| shape.allows(k)).collect(),
            shape: Arc::clone(&shape),
            kept: Vec::new(),
            at: clock,
        };
        let at = if self.asked.len() < self.most_shapes {
            self.asked.push(new);
            self.asked.len() - 1
        } else {
            let oldest = (0..self.asked.len())
                .min_by_key(|i| self.asked[*i].at)
                .unwrap_or(0);
            self.shapes.remove(&self.asked[oldest].shape);
            self.asked[oldest] = new;
            oldest
        };
        self.shapes.insert(shape, at);
        at
    }

    fn kept(&mut self, asked: usize, node: usize) -> Option<Place> {
        let at = self.nodes.get(node)?;
        let room = at.room.as_ref()?;
        let asked = &mut self.asked[asked];
        if asked.kept.len() < self.nodes.len() {
            asked.kept.resize(self.nodes.len(), Kept::default());
        }
        let kept = &mut asked.kept[node];
        let epoch = self.epoch;
        if kept.version != at.version || kept.epoch != epoch {
            let serves = !asked.shape.asks_gpu()
                || asked.allowed.get(usize::from(room.kind())).copied() == Some(true);
            let fits = serves && room.fits(&asked.shape).is_ok();
            *kept = Kept {
                version: at.version,
                epoch,
                place: fits.then(|| {
                    let seen = Seen::new(room, &at.base, at.position);
                    self.policy.place(seen, &asked.shape)
                }),
            };
        }
        kept.place
    }

    fn refusal(&self, asked: usize, node: usize) -> Refusal {
        let Some(room) = self.room(node) else {
            return Refusal::Unknown;
        };
        let asked = &self.asked[asked];
        if asked.shape.asks_gpu() && asked.allowed.get(usize::from(room.kind())) != Some(&true) {
            return Refusal::Kind;
        }
        match room.fits(&asked.shape) {
            Err(short) => Refusal::Short(short),
            Ok(()) => Refusal::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{policy::Name, popularity::Popularity};

    fn shape(whole: u16, share: u16) -> Shape {
        Shape {
            cpu_milli: 1000,
            whole,
            share,
            ..Shape::default()
        }
    }

    proptest! {
        /// Nodes that are alike cost the same but for where they stand, in any order.
        #[test]
        fn alike_nodes_differ_by_their_order_alone(
            asks in prop::collection::vec((0..3_u16, 0..1000_u16), 1..9),
            cards in prop::collection::vec(0..=1000_u16, 1..9),
            positions in prop::collection::vec(0.0..1.0_f64, 6),
        ) {
            let shapes: Vec<Shape> = asks.iter().map(|(whole, share)| match whole {
                0 => shape(0, *share),
                whole => shape(*whole, 0),
            }).collect();
            for name in Name::ALL {
                let mut board = Board::new(name.policy());
                let kind = board.kind(&Kind::default());
                board.plan_for(Popularity::of(&shapes).types());
                for (node, position) in positions.iter().enumerate() {
                    board.stand(node, *position);
                    board.set(node, Some(Room::new(16_000, 0, kind, cards.clone())));
                }
                for shape in &shapes {
                    let places = (0..positions.len()).map(|node| board.place(shape, node));
                    let Ok(places) = places.collect::<Result<Vec<Place>, _>>() else {
                        continue;
                    };
                    for place in &places {
                        let net = |place: &Place| (place.cost - place.by_order, place.card);
                        prop_assert_eq!(net(place), net(&places[0]), "{}", name);
                        prop_assert!((0..=place.cost).contains(&place.by_order), "{}", name);
                    }
                }
            }
        }

        /// Kept costs are those that a board made afresh would give.
        #[test]
        fn kept_costs_are_fresh_ones(
            asks in prop::collection::vec((0..5_usize, 0..3_u16, 0..10_u16), 1..60)
        ) {
            let shapes: Vec<Shape> = asks.iter().map(|(_, w, s)| match w {
                0 => shape(0, 50 + s * 95),
                w => shape(*w, 0),
            }).collect();
            for name in Name::ALL {
                let mut board = Board::new(name.policy());
                let kind = board.kind(&Kind::default());
                board.plan_for(Popularity::of(&shapes).types());
                for node in 0..5 {
                    board.set(node, Some(Room::new(16_000, 0, kind, vec![1000; 4])));
                }
                for (shape, (node, _, _)) in shapes.iter().zip(&asks) {
                    let mut fresh = Board::new(name.policy());
                    fresh.kind(&Kind::default());
                    for node in 0..5 {
                        fresh.set(node, board.room(node).cloned());
                    }
                    fresh.plan_for(board.classes().to_vec());
                    // Ours weighs classes anew only when they have drifted.
                    if name != Name::Tautline {
                        prop_assert_eq!(board.best(shape), fresh.best(shape), "{}", name);
                    }
                    for node in 0..5 {
                        let room = board.room(node).cloned().unwrap();
                        let kept = board.place(shape, node);
                        prop_assert_eq!(kept, board.place_in(shape, node, &room), "{}", name);
                        prop_assert_eq!(kept.is_ok(), fresh.place(shape, node).is_ok());
                    }
                    if let Ok(place) = board.place(shape, *node) {
                        let mut room = board.room(*node).unwrap().clone();
                        room.take(shape, place.card.map(usize::from)).unwrap();
                        board.set(*node, Some(room));
                    }
                }
            }
        }
    }
}
