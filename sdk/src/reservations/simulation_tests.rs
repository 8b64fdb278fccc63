//! A simulated cluster with late writes, lost responses and a delayed watch: no device is granted
//! twice.

use proptest::prelude::*;

use super::*;

/// The last moment of a Binding, and the most that the watch lags.
const MARGIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
enum Step {
    /// A pod, an old or a new one, is to be bound.
    Reserve(usize),
    /// The API server gets an attempt's Binding.
    Write(usize),
    /// It refuses it, and the caller releases.
    Refuse(usize),
    /// The caller of an attempt whose Binding was written hears of it.
    Confirm(usize),
    /// It does not know better, and releases.
    ReleaseOfBound(usize),
    Delete,
    Watch,
    Expire,
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3usize).prop_map(Step::Reserve),
        3 => (0..6usize).prop_map(Step::Write),
        2 => (0..6usize).prop_map(Step::Refuse),
        2 => (0..6usize).prop_map(Step::Confirm),
        1 => (0..6usize).prop_map(Step::ReleaseOfBound),
        1 => Just(Step::Delete),
        2 => Just(Step::Watch),
        1 => Just(Step::Expire),
        4 => (0..4000u16).prop_map(Step::Wait),
    ]
}

struct Attempt {
    id: String,
    pod: String,
    reserved_at: Instant,
    written: bool,
}

struct World {
    book: Reservations<()>,
    now: Instant,
    attempts: Vec<Attempt>,
    /// The API server's state.
    bound: Vec<String>,
    /// The watch's state.
    shown: Vec<String>,
    /// Events that the watch has yet to show: time, pod, and whether it is bound or gone.
    events: Vec<(Instant, String, bool)>,
    pods: [u32; 3],
}

impl World {
    fn reserve(&mut self, slot: usize) {
        let pod = format!("pod-{slot}-{}", self.pods[slot]);
        let key = Key {
            uid: pod.clone(),
            node: "n".into(),
            rule: Rule::default(),
        };
        let (now, shown) = (self.now, &self.shown);
        let granted = self.book.reserve(now, key, MAX_HOLD, |book| {
            let taken =
                shown.iter().any(|p| *p != pod) || book.grants_on_node(now, "n").next().is_some();
            if taken { Err(()) } else { Ok(()) }
        });
        if let Ok(granted) = granted {
            self.attempts.push(Attempt {
                id: granted.id,
                pod,
                reserved_at: now,
                written: false,
            });
        }
    }

    fn at(&mut self, i: usize) -> Option<usize> {
        (!self.attempts.is_empty()).then(|| i % self.attempts.len())
    }

    fn write(&mut self, i: usize) {
        let attempt = &mut self.attempts[i];
        let in_time = self.now < attempt.reserved_at + (MAX_HOLD - MARGIN);
        let lives = self.pods.iter().enumerate();
        let lives = lives
            .map(|(s, n)| format!("pod-{s}-{n}"))
            .any(|p| p == attempt.pod);
        if in_time && lives && !self.bound.contains(&attempt.pod) {
            attempt.written = true;
            self.bound.push(attempt.pod.clone());
            self.events.push((self.now, attempt.pod.clone(), true));
        }
    }

    fn delete(&mut self) {
        if let Some(pod) = self.bound.pop() {
            let slot: usize = pod[4..5].parse().unwrap();
            self.pods[slot] += 1;
            self.events.push((self.now, pod, false));
        }
    }

    /// Shows the oldest event; the snapshot first, then the reservations.
    fn watch(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let (_, pod, bound) = self.events.remove(0);
        self.shown.retain(|p| *p != pod);
        if bound {
            self.shown.push(pod.clone());
        }
        self.book.observe_pod(self.now, &pod, bound.then_some("n"));
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((since, ..)) = self.events.first().filter(|e| e.0 + MARGIN <= end) {
            self.now = self.now.max(*since + MARGIN);
            self.watch();
        }
        self.now = end;
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Reserve(slot) => self.reserve(slot),
            Step::Delete => self.delete(),
            Step::Watch => self.watch(),
            Step::Expire => _ = self.book.expire(self.now),
            Step::Wait(millis) => self.wait(Duration::from_millis(millis.into())),
            Step::Write(i) | Step::Refuse(i) | Step::Confirm(i) | Step::ReleaseOfBound(i) => {
                let Some(i) = self.at(i) else { return };
                let (id, written) = (self.attempts[i].id.clone(), self.attempts[i].written);
                match step {
                    Step::Write(_) if !written => self.write(i),
                    Step::Refuse(_) if !written => {
                        self.attempts.remove(i);
                        self.book.release(self.now, &id);
                    }
                    Step::Confirm(_) if written => {
                        self.attempts.remove(i);
                        _ = self.book.confirm(self.now, &id);
                    }
                    Step::ReleaseOfBound(_) if !written => {
                        let pod = &self.attempts[i].pod;
                        if self.bound.contains(pod) {
                            self.attempts.remove(i);
                            self.book.release(self.now, &id);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn reservations_never_grant_a_device_twice(steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World {
            book: Reservations::new("a"),
            now: Instant::now(),
            attempts: Vec::new(),
            bound: Vec::new(),
            shown: Vec::new(),
            events: Vec::new(),
            pods: [0; 3],
        };
        for step in &steps {
            world.step(step);
            prop_assert!(world.bound.len() <= 1, "{:?} after {step:?}", world.bound);
        }
    }
}
