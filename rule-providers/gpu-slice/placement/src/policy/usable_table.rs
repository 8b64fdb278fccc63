//! Precomputes how much of a node's free GPU each class of expected pods could use, in thousandths
//! of a card, for Tautline's placement policy.

use crate::{
    node_capacity::NodeCapacity,
    planned_classes::{PlannedClass, PlannedClasses},
    request_distribution::RequestClass,
    shape::CARD_MILLI,
};

#[derive(Clone, Debug)]
struct ClassEntry {
    cpu_milli: f64,
    gpu_per_cpu: f64,
    group: usize,
    class: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct UsableTable {
    /// Groups of classes with equal cards: the thousandths of each card, and the number of cards.
    groups: Vec<(u16, u16)>,
    /// Thousandths of a card that a group of shares can use: `[left][group]`.
    usable_of_card: Vec<f64>,
    remainder_weight: f64,
    by_kind: Vec<Vec<ClassEntry>>,
}

impl UsableTable {
    /// Creates the table of the classes. `cpu_weight` is the weight of CPU as a limit to copies; 0:
    /// CPU limits the next copy only. `remainder_weight` is the weight of the GPU that copies leave
    /// on a card with enough for one copy; 0: only copies that fit count; 1: the whole of every
    /// such card counts, as in FGD.
    pub(super) fn new(types: &PlannedClasses, cpu_weight: f64, remainder_weight: f64) -> Self {
        let mut table = Self {
            remainder_weight,
            ..Self::default()
        };
        table.by_kind.resize_with(types.kind_count(), Vec::new);
        let with_gpu = |(_, t): &(usize, &PlannedClass)| t.request.milli > 0;
        for (class, t) in types.iter().enumerate().filter(with_gpu) {
            let (request, group) = (&t.request, table.group(&t.request));
            let rate = request.total_milli() as f64 / (cpu_weight * request.cpu_milli as f64);
            for (kind, entries) in table.by_kind.iter_mut().enumerate() {
                if t.may_run_on(kind as u16) {
                    entries.push(ClassEntry {
                        cpu_milli: request.cpu_milli as f64,
                        gpu_per_cpu: rate,
                        group,
                        class,
                    });
                }
            }
        }
        let groups = table.groups.iter().copied();
        let of_card = |left: u16| {
            groups.clone().map(move |(milli, _)| {
                if milli == CARD_MILLI || left < milli {
                    return 0.0;
                }
                let copies = f64::from(left / milli * milli);
                copies + remainder_weight * (f64::from(left) - copies)
            })
        };
        table.usable_of_card = (0..=CARD_MILLI).flat_map(of_card).collect();
        table
    }

    fn group(&mut self, class: &RequestClass) -> usize {
        let group = (class.milli, class.cards);
        self.groups
            .iter()
            .position(|g| *g == group)
            .unwrap_or_else(|| {
                self.groups.push(group);
                self.groups.len() - 1
            })
    }

    pub(super) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The classes of a kind, in the order of [`Self::usable_by_class`].
    pub(super) fn classes_on(&self, kind: u16) -> impl Iterator<Item = usize> {
        self.entries(kind).iter().map(|e| e.class)
    }

    fn entries(&self, kind: u16) -> &[ClassEntry] {
        self.by_kind.get(usize::from(kind)).map_or(&[], |e| e)
    }

    /// Adds a card to the groups of shares, or removes it (`sign` -1).
    pub(super) fn add_card(&self, out: &mut [f64], left: u16, sign: f64) {
        let at = usize::from(left.min(CARD_MILLI)) * self.groups.len();
        for (x, part) in out.iter_mut().zip(&self.usable_of_card[at..]) {
            *x += sign * part;
        }
    }

    pub(super) fn count_whole_cards(&self, free: usize, out: &mut [f64]) {
        for ((milli, cards), x) in self.groups.iter().zip(out) {
            if *milli == CARD_MILLI {
                let cards = usize::from(*cards).max(1);
                let copies = (free / cards * cards) as f64;
                let all = if free >= cards { free as f64 } else { 0.0 };
                *x = f64::from(CARD_MILLI) * (copies + self.remainder_weight * (all - copies));
            }
        }
    }

    pub(super) fn usable_by_class(
        &self,
        kind: u16,
        cpu_milli: f64,
        of_cards: &[f64],
    ) -> impl Iterator<Item = f64> {
        self.entries(kind).iter().map(move |e| {
            if cpu_milli < e.cpu_milli {
                0.0
            } else if e.gpu_per_cpu.is_finite() {
                of_cards[e.group].min(cpu_milli * e.gpu_per_cpu)
            } else {
                of_cards[e.group]
            }
        })
    }

    pub(super) fn precompute(&self, capacity: &NodeCapacity) -> Box<[f64]> {
        let mut all = vec![0.0; self.group_count()];
        for left in capacity.cards() {
            self.add_card(&mut all, *left, 1.0);
        }
        self.count_whole_cards(capacity.free_cards(), &mut all);
        let cpu_milli = capacity.cpu_milli() as f64;
        let usable = self.usable_by_class(capacity.kind(), cpu_milli, &all);
        [all.as_slice(), &usable.collect::<Vec<f64>>()]
            .concat()
            .into()
    }
}
