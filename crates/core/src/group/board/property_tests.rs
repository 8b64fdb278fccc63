//! Properties of the board, with random faults in a small cluster that the test simulates: its
//! planner, its kube-scheduler and its API server.

use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);
const NODES: [&str; 3] = ["n0", "n1", "n2"];

type Uid = Arc<str>;

/// A bind under way.
#[derive(Debug)]
struct Waiter {
    node: Uid,
    came: Instant,
    may_reserve: bool,
    reserved: bool,
    writes_since: Option<Instant>,
}

/// The places that a group got at once.
#[derive(Debug)]
struct Round {
    since: Instant,
    places: Places,
    writes_since: Option<Instant>,
}

struct World {
    board: Board,
    binds: bool,
    now: Instant,
    capacity: Vec<usize>,
    /// The pods that exist, and the number of their group.
    pods: BTreeMap<Uid, usize>,
    /// The deleted pods, their group, and when they were deleted.
    deleted: BTreeMap<Uid, (usize, Instant)>,
    bound: BTreeMap<Uid, Uid>,
    /// The places that count as taken.
    held: BTreeMap<Uid, Uid>,
    rounds: BTreeMap<usize, Round>,
    waiters: BTreeMap<Uid, Waiter>,
    plan: Option<(Instant, usize, u64, Vec<Uid>)>,
    minimums: Vec<Option<u32>>,
    /// The pods that kube-scheduler tries.
    active: BTreeSet<Uid>,
    /// The events that may come a second time, late.
    history: Vec<Event>,
}

fn key(group: usize) -> GroupKey {
    GroupKey {
        namespace: "shop".into(),
        offer: "near".into(),
        name: group.to_string().into(),
    }
}

fn number(key: &GroupKey) -> usize {
    key.name.parse().unwrap()
}

fn pick<T>(mut items: impl ExactSizeIterator<Item = T>, index: u8) -> Option<T> {
    let len = items.len();
    (len > 0).then(|| items.nth(usize::from(index) % len).unwrap())
}

impl World {
    fn new(binds: bool, capacity: &[usize], minimums: &[u32]) -> Self {
        let mut world = Self {
            board: Board::new(TIMEOUT, binds),
            binds,
            now: Instant::now(),
            capacity: capacity.to_vec(),
            pods: BTreeMap::new(),
            deleted: BTreeMap::new(),
            bound: BTreeMap::new(),
            held: BTreeMap::new(),
            rounds: BTreeMap::new(),
            waiters: BTreeMap::new(),
            plan: None,
            minimums: vec![None; minimums.len()],
            active: BTreeSet::new(),
            history: Vec::new(),
        };
        for (group, minimum) in minimums.iter().enumerate() {
            world.set_minimum(group, Some(*minimum));
        }
        world
    }

    fn free(&self) -> Vec<usize> {
        let count = |(node, capacity): (&&str, &usize)| {
            let waits = self.waiters.iter();
            let lone = waits.filter(|(uid, _)| !self.held.contains_key(*uid));
            let lone = lone.map(|(_, waiter)| &waiter.node);
            let taken = self.bound.values().chain(self.held.values()).chain(lone);
            let taken = taken.filter(|n| &***n == *node).count();
            assert!(taken <= *capacity, "{node} is used twice");
            capacity - taken
        };
        NODES.iter().zip(&self.capacity).map(count).collect()
    }

    fn free_node(&self) -> Option<Uid> {
        let free = self.free();
        let first = free.iter().position(|&free| free > 0)?;
        Some(NODES[first].into())
    }

    fn apply(&mut self, event: Event) {
        let actions = self.board.apply(event, self.now);
        self.act(actions);
    }

    /// Applies an event that may come again.
    fn watch(&mut self, event: Event) {
        self.history.push(event.clone());
        self.apply(event);
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Plan {
                    group,
                    number: plan,
                    members,
                } => {
                    let last = self.plan.as_ref();
                    assert!(last.is_none_or(|(at, ..)| *at + TIMEOUT <= self.now));
                    assert!(members.len() > 1);
                    self.plan = Some((self.now, number(&group), plan, members));
                }
                Action::Hold { group, places } => {
                    self.held.extend(places.clone());
                    let round = Round {
                        since: self.now,
                        places,
                        writes_since: None,
                    };
                    self.rounds.insert(number(&group), round);
                }
                Action::Free { uids, .. } => {
                    for uid in uids {
                        let held = self.held.remove(&uid).is_some();
                        // The API server may have a binding that the board has not seen.
                        assert!(held || self.bound.contains_key(&uid), "{uid} has no place");
                    }
                }
                Action::Wake { uids, .. } => self.active.extend(uids),
                Action::Proceed { uid, step } => self.proceed(&uid, step),
                Action::Fail { uid, .. } => {
                    let waiter = self.waiters.remove(&uid).expect("a bind waits");
                    assert!(waiter.writes_since.is_none(), "{uid} had its last action");
                    self.active.insert(uid);
                }
            }
        }
        self.check();
    }

    fn proceed(&mut self, uid: &Uid, step: Next) {
        let group = key(self.pods[uid]);
        let state = self.board.states().find(|(key, _)| **key == group);
        let state = state.unwrap().1;
        let together = self.rounds.values_mut();
        let mut together = together.filter(|r| r.places.contains_key(uid));
        let round = together.next().filter(|_| self.held.contains_key(uid));
        if step == Next::Write
            && let Some(round) = round
        {
            for other in round.places.keys().filter(|u| self.held.contains_key(*u)) {
                assert!(self.waiters[other].reserved, "{other} has not reserved");
            }
            let together = state.bound + state.held;
            assert!(
                state
                    .minimum
                    .is_none_or(|minimum| minimum as usize <= together)
            );
            round.writes_since = Some(self.now);
        }
        let waiter = self.waiters.get_mut(uid).expect("a bind waits");
        assert!(waiter.writes_since.is_none());
        match step {
            Next::Reserve => waiter.may_reserve = true,
            Next::Write => {
                assert!(waiter.reserved);
                waiter.writes_since = Some(self.now);
            }
        }
    }

    /// Checks that no room is used twice, and that a group holds all its places or none before
    /// its writes.
    fn check(&mut self) {
        self.free();
        let (held, bound) = (&self.held, &self.bound);
        self.rounds.retain(|_, round| {
            let mut places = round.places.keys();
            places.any(|uid| held.contains_key(uid))
        });
        for round in self.rounds.values().filter(|r| r.writes_since.is_none()) {
            let mut places = round.places.keys();
            assert!(places.all(|uid| held.contains_key(uid)
                || bound.contains_key(uid)
                || self.deleted.contains_key(uid)));
        }
    }

    fn tick(&mut self, millis: u64, faults: bool) {
        self.now += Duration::from_millis(millis);
        // The writes of the extender have a deadline.
        let overdue = |w: &Waiter| w.writes_since.is_some_and(|at| at + TIMEOUT <= self.now);
        let overdue = self.waiters.iter().filter(|(_, w)| overdue(w));
        let overdue: Vec<Uid> = overdue.map(|(uid, _)| uid.clone()).collect();
        for uid in overdue {
            self.write(&uid, faults);
        }
        self.apply(Event::Tick);
        let past = |at: Instant| at + TIMEOUT <= self.now;
        for round in self.rounds.values() {
            assert!(
                !past(round.writes_since.unwrap_or(round.since)),
                "{round:?}"
            );
        }
        for waiter in self.waiters.values() {
            assert!(
                !past(waiter.writes_since.unwrap_or(waiter.came)),
                "{waiter:?}"
            );
        }
    }

    fn set_minimum(&mut self, group: usize, minimum: Option<u32>) {
        self.minimums[group] = minimum;
        let group = key(group);
        self.watch(Event::Minimum { group, minimum });
    }

    fn see(&mut self, uid: &Uid) {
        let group = self.pods[uid];
        let bound = self.bound.contains_key(uid);
        let member = Member {
            uid: uid.clone(),
            name: uid.clone(),
            priority: i32::try_from(group).unwrap() % 2,
            created_unix: 0,
            bound,
        };
        let minimum = self.minimums[group];
        let group = key(group);
        self.watch(Event::Minimum {
            group: group.clone(),
            minimum,
        });
        self.watch(Event::Seen { group, member });
    }

    fn create(&mut self, group: usize) {
        let uid: Uid = format!("{group}-{}", self.pods.len() + self.deleted.len()).into();
        self.pods.insert(uid.clone(), group);
        self.active.insert(uid.clone());
        self.see(&uid);
    }

    fn delete(&mut self, uid: &Uid) {
        let group = self.pods.remove(uid).unwrap();
        self.deleted.insert(uid.clone(), (group, self.now));
        self.bound.remove(uid);
        self.active.remove(uid);
        let (group, uid) = (key(group), uid.clone());
        self.watch(Event::Gone { group, uid });
    }

    fn step(&mut self, uid: &Uid, step: Step) {
        let deleted = self.deleted.get(uid).map(|(group, _)| group);
        let group = self.pods.get(uid).or(deleted).unwrap();
        let (group, uid) = (key(*group), uid.clone());
        self.apply(Event::Bind { group, uid, step });
    }

    fn end(&mut self, uid: &Uid, step: Step) {
        self.waiters.remove(uid);
        self.active.insert(uid.clone());
        self.step(uid, step);
    }

    /// Lets kube-scheduler try a pod.
    fn schedule(&mut self, uid: &Uid, fault: bool) {
        self.active.remove(uid);
        if !self.pods.contains_key(uid) || self.bound.contains_key(uid) {
            return;
        }
        if self.waiters.contains_key(uid) {
            return;
        }
        self.see(uid);
        let group = key(self.pods[uid]);
        let (verdict, actions) = self.board.ask(&group, uid, self.now);
        self.act(actions);
        let is_alone = verdict == Verdict::Alone;
        let node = match verdict {
            Verdict::Alone => self.free_node(),
            Verdict::Place(node) => {
                assert_eq!(self.held.get(uid), Some(&node));
                if fault {
                    let (uid, why) = (uid.clone(), "taint".to_owned());
                    return self.watch(Event::Lost { group, uid, why });
                }
                Some(node)
            }
            Verdict::Waiting { .. } | Verdict::Planning | Verdict::NoRoom { .. } => None,
        };
        let Some(node) = node else { return };
        if !self.binds || is_alone && fault {
            // kube-scheduler, or another scheduler, binds.
            return self.set_bound(uid, node);
        }
        let waiter = Waiter {
            node,
            came: self.now,
            may_reserve: false,
            reserved: false,
            writes_since: None,
        };
        self.waiters.insert(uid.clone(), waiter);
        self.step(uid, Step::Came);
    }

    fn set_bound(&mut self, uid: &Uid, node: Uid) {
        self.held.remove(uid);
        self.bound.insert(uid.clone(), node);
        self.see(uid);
    }

    fn write(&mut self, uid: &Uid, fault: bool) {
        let waiter = self.waiters.remove(uid).unwrap();
        if fault || !self.pods.contains_key(uid) || self.bound.contains_key(uid) {
            return self.end(uid, Step::Failed("conflict".to_owned()));
        }
        self.held.remove(uid);
        self.bound.insert(uid.clone(), waiter.node);
        let (group, uid) = (key(self.pods[uid]), uid.clone());
        let step = Step::Written;
        self.watch(Event::Bind { group, uid, step });
    }

    /// Lets a bind make a step.
    fn drive(&mut self, uid: &Uid, fault: bool) {
        let waiter = self.waiters.get_mut(uid).unwrap();
        match (waiter.writes_since, waiter.may_reserve) {
            (Some(_), _) => self.write(uid, fault),
            (None, true) if fault => self.end(uid, Step::Failed("full".to_owned())),
            (None, true) => {
                waiter.reserved = true;
                self.step(uid, Step::Reserved);
            }
            (None, false) if fault => self.end(uid, Step::Left),
            (None, false) => self.step(uid, Step::Came),
        }
    }

    /// Answers the plan from the room that is free.
    fn answer(&mut self) {
        let Some((_, group, number, members)) = self.plan.take() else {
            return;
        };
        let (group, mut free) = (key(group), self.free());
        let mut places = Places::new();
        for uid in &members {
            if let Some(node) = free.iter().position(|&free| free > 0) {
                free[node] -= 1;
                places.insert(uid.clone(), NODES[node].into());
            }
        }
        let placed = places.len();
        self.watch(if placed == members.len() {
            Event::Planned {
                group,
                number,
                places,
            }
        } else {
            let why = "capacity".to_owned();
            Event::NoRoom {
                group,
                number,
                placed,
                why,
            }
        });
    }

    /// Returns true if the event shows a pod that was deleted so long ago that the board has
    /// forgotten it.
    fn is_outdated(&self, event: &Event) -> bool {
        let Event::Seen { member, .. } = event else {
            return false;
        };
        let deleted = self.deleted.get(&member.uid);
        deleted.is_some_and(|(_, at)| *at + TIMEOUT <= self.now)
    }

    fn disturb(&mut self, (operation, index, value): (u8, u8, u8)) {
        let group = usize::from(index) % self.minimums.len();
        match operation {
            0..4 => {
                if self.pods.values().filter(|g| **g == group).count() < 5 {
                    self.create(group);
                }
            }
            4 => {
                if let Some(uid) = pick(self.pods.keys(), index).cloned() {
                    self.delete(&uid);
                }
            }
            5 => self.set_minimum(group, (value % 6 > 0).then(|| u32::from(value) % 6)),
            6..10 => {
                if let Some(uid) = pick(self.pods.keys(), index).cloned() {
                    self.schedule(&uid, value % 8 == 0);
                }
            }
            10..20 => {
                if let Some(uid) = pick(self.waiters.keys(), index).cloned() {
                    self.drive(&uid, value % 8 == 0);
                }
            }
            20 => self.tick(u64::from(value) * 20, value % 2 == 0),
            21 => self.tick(u64::from(value) * 200, value % 2 == 0),
            22..26 if value % 8 > 0 => self.answer(),
            22..26 => self.plan = None,
            26 => {
                let node = self.free_node();
                let unbound = self
                    .pods
                    .keys()
                    .filter(|uid| !self.bound.contains_key(*uid));
                let uid = pick(unbound.cloned().collect::<Vec<_>>().into_iter(), index);
                if let (Some(node), Some(uid)) = (node, uid)
                    && !self.waiters.contains_key(&uid)
                {
                    self.set_bound(&uid, node);
                }
            }
            27..30 => {
                if let Some(event) = pick(self.history.iter(), index ^ value).cloned()
                    && !self.is_outdated(&event)
                {
                    self.apply(event);
                }
            }
            _ => {
                let group = key(group);
                let uid: Uid = "unknown".into();
                let why = "junk".to_owned();
                for step in [Step::Reserved, Step::Written, Step::Left, Step::Failed(why)] {
                    let (group, uid) = (group.clone(), uid.clone());
                    self.apply(Event::Bind { group, uid, step });
                }
                let why = "junk".to_owned();
                self.apply(Event::Lost { group, uid, why });
            }
        }
    }

    /// Runs the cluster without faults, after a new list of all pods.
    fn heal(&mut self) {
        for (uid, (group, _)) in self.deleted.clone() {
            let group = key(group);
            self.apply(Event::Gone { group, uid });
        }
        for uid in self.pods.clone().keys() {
            self.see(uid);
        }
        for second in 0..300 {
            self.answer();
            // kube-scheduler tries the pods that it has set aside again at times.
            if second % 10 == 0 {
                self.active.extend(self.pods.keys().cloned());
            }
            for uid in self.active.clone() {
                self.schedule(&uid, false);
            }
            for uid in self.waiters.keys().cloned().collect::<Vec<_>>() {
                if self.waiters.contains_key(&uid) {
                    self.drive(&uid, false);
                }
            }
            self.tick(1_000, false);
        }
    }

    /// Checks that each complete group that fits is bound.
    fn check_bound(&self) {
        assert!(self.waiters.is_empty(), "{:?}", self.waiters);
        assert!(self.held.is_empty(), "{:?}", self.held);
        let free: usize = self.free().iter().sum();
        for (group, minimum) in self.minimums.iter().enumerate() {
            let members = self.pods.iter().filter(|(_, g)| **g == group);
            let (bound, unbound): (Vec<_>, Vec<_>) =
                members.partition(|(uid, _)| self.bound.contains_key(*uid));
            let Some(minimum) = minimum.map(|m| m as usize) else {
                continue;
            };
            let need = minimum.saturating_sub(bound.len());
            if unbound.is_empty() || need > unbound.len() {
                continue;
            }
            let wanted = need.max(1);
            let states: Vec<_> = self.board.states().collect();
            assert!(wanted > free, "group {group} fits in {free}: {states:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn groups_are_bound_as_a_whole_and_never_hold_the_same_room(
        binds in prop::bool::weighted(0.8),
        capacity in prop::collection::vec(0usize..5, 3),
        minimums in prop::collection::vec(1u32..6, 2..5),
        operations in prop::collection::vec((0u8..31, any::<u8>(), any::<u8>()), 0..200),
    ) {
        let mut world = World::new(binds, &capacity, &minimums);
        for operation in operations {
            world.disturb(operation);
        }
        world.heal();
        world.check_bound();
    }

    #[test]
    fn complete_groups_are_bound_without_faults(
        capacity in prop::collection::vec(0usize..5, 3),
        minimums in prop::collection::vec(2u32..6, 2..5),
    ) {
        let mut world = World::new(true, &capacity, &minimums);
        for (group, minimum) in minimums.iter().enumerate() {
            (0..*minimum).for_each(|_| world.create(group));
        }
        world.heal();
        world.check_bound();
        for (group, minimum) in minimums.iter().enumerate() {
            let bound = world.bound.keys().filter(|uid| world.pods[*uid] == group).count();
            prop_assert!(bound == 0 || bound == *minimum as usize);
        }
    }
}
