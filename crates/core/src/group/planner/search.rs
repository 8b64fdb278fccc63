//! The search for a placement: starts, greedy attempts, and going back.

use std::cmp::Reverse;

use super::{
    mean_cost,
    state::{Prefers, State},
    tables::Tables,
};

/// A search with a bounded number of steps.
pub(super) struct Search<'t, 'a> {
    tables: &'t Tables<'a>,
    max_steps: usize,
    /// The number of steps so far.
    pub steps: usize,
}

impl<'t, 'a> Search<'t, 'a> {
    pub fn new(tables: &'t Tables<'a>, max_steps: usize) -> Self {
        Self {
            tables,
            max_steps,
            steps: 0,
        }
    }

    /// Returns the best complete placement that it finds. A quarter of the steps is left for
    /// [`largest`](Self::largest).
    pub fn complete(&mut self, root: &State) -> Option<State> {
        let limit = self.max_steps - self.max_steps / 4;
        let mut root = root.clone();
        if !root.prune(self.tables, &mut self.steps) {
            return None;
        }
        if root.is_done() {
            return Some(root);
        }
        let mut best = None;
        for prefers in [Prefers::Cost, Prefers::Room] {
            let (shape, nodes) = root.choices(self.tables, prefers, &mut self.steps)?;
            for at in nodes {
                if let Some(start) = self.start(&root, shape, at)
                    && let Some(found) = self.attempt(start, prefers, None)
                {
                    self.keep_best(&mut best, found);
                }
                if self.steps > limit {
                    return best.map(|(_, state)| state);
                }
            }
            if best.is_some() {
                return best.map(|(_, state)| state);
            }
        }
        let (shape, nodes) = root.choices(self.tables, Prefers::Room, &mut self.steps)?;
        for (tried, at) in nodes.iter().enumerate() {
            let share = limit.saturating_sub(self.steps) / (nodes.len() - tried);
            let until = self.steps + share;
            if let Some(start) = self.start(&root, shape, *at)
                && let Some(found) = self.attempt(start, Prefers::Room, Some(until))
            {
                return Some(found);
            }
            if self.steps <= until {
                // No placement uses the node for this shape.
                root.close(self.tables, shape, *at);
            }
        }
        None
    }

    /// Returns the placement of the most members that it finds.
    pub fn largest(&mut self, root: &State) -> State {
        let mut best = None;
        let choices = root.choices(self.tables, Prefers::Room, &mut self.steps);
        let (shape, nodes) = choices.unwrap_or_default();
        for at in nodes {
            let mut next = Some((shape, at));
            let mut state = root.clone();
            while let Some((shape, at)) = next {
                state.place(self.tables, shape, at, &mut self.steps);
                next = state.choice(self.tables, Prefers::Room, &mut self.steps);
            }
            self.keep_best(&mut best, state);
            if self.steps > self.max_steps {
                break;
            }
        }
        best.map_or_else(|| root.clone(), |(_, state)| state)
    }

    /// Returns the state after a first choice; `None` if no complete placement contains it.
    fn start(&mut self, root: &State, shape: usize, at: usize) -> Option<State> {
        let mut state = root.clone();
        self.steps += root.used.len();
        state.place(self.tables, shape, at, &mut self.steps);
        state.prune(self.tables, &mut self.steps).then_some(state)
    }

    /// Places all members from a start. With `limit` it goes back on its choices until it has taken
    /// this number of steps.
    fn attempt(&mut self, start: State, prefers: Prefers, limit: Option<usize>) -> Option<State> {
        let tables = self.tables;
        let mut path: Vec<(State, usize, usize)> = Vec::new();
        let mut state = start;
        while !state.is_done() {
            let mut is_alive = false;
            if let Some((shape, at)) = state.choice(tables, prefers, &mut self.steps) {
                if limit.is_some() {
                    self.steps += state.used.len();
                    path.push((state.clone(), shape, at));
                }
                state.place(tables, shape, at, &mut self.steps);
                is_alive = state.prune(tables, &mut self.steps);
            }
            while !is_alive {
                let (mut before, shape, at) = path.pop()?;
                if limit.is_none_or(|limit| self.steps > limit) {
                    return None;
                }
                // Another member on a used node takes no node from the rest, so a placement without
                // it fails too.
                let is_free = before.used[at] > 0 && tables.shapes() == 1 && !tables.is_ordered[0];
                if !is_free {
                    before.close(tables, shape, at);
                    is_alive = before.prune(tables, &mut self.steps);
                    state = before;
                }
            }
        }
        Some(state)
    }

    fn keep_best(&self, best: &mut Option<(Score, State)>, state: State) {
        let score = (
            Reverse(state.placed()),
            mean_cost(self.tables.problem, &state.places),
            state.used.iter().filter(|used| **used > 0).count(),
            state.fragments(self.tables),
        );
        if best.as_ref().is_none_or(|(than, _)| score < *than) {
            *best = Some((score, state));
        }
    }
}

/// The members, mean cost, nodes and fragments of a placement: the lowest is best.
type Score = (Reverse<usize>, u64, usize, u64);
