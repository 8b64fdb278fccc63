//! The reader on the fake NVML: MIG instances are made and destroyed.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::{Value, json};
use support::{Reader, Scene};
use tautline_nvml::{Action, MigDestroy, MigInstance, MigSlot, Outcome, Reading};

const OFTEN: &str = "100ms";

fn scene(mig: &Value, processes: &Value) -> Value {
    json!({"cards": [{"uuid": "GPU-a", "mig": mig}, {"uuid": "GPU-b"}], "processes": processes})
}

fn create(profile: &str, start: u32) -> Action {
    Action::Create(MigSlot {
        card: "GPU-a".into(),
        profile: profile.into(),
        start,
    })
}

fn destroy(of: &MigInstance) -> Action {
    Action::Destroy(MigDestroy {
        slot: of.slot("GPU-a"),
        gpu_instance: of.gpu_instance,
    })
}

fn made(outcome: Outcome) -> MigInstance {
    match outcome {
        Outcome::Instance(made) => made,
        other => panic!("nothing was made: {other:?}"),
    }
}

fn refused(outcome: Outcome) -> String {
    match outcome {
        Outcome::Error(why) => why,
        other => panic!("no refusal: {other:?}"),
    }
}

fn listed(reading: &Reading) -> Vec<(&str, u32)> {
    let instances = reading.cards[0].mig.iter().flatten();
    instances
        .map(|one| (one.profile.as_str(), one.start))
        .collect()
}

#[test]
fn profiles_are_those_of_the_driver_without_attributes() {
    let scene = Scene::new(&scene(&json!([]), &json!([])));
    let reading = Reader::start(&scene.path(), OFTEN).first();
    let profiles = &reading.cards[0].mig_profiles;
    let listed: Vec<_> = profiles
        .iter()
        .map(|p| (p.name.as_str(), p.size, p.compute, p.starts.len()))
        .collect();
    assert_eq!(
        listed,
        [
            ("1g.10gb", 1, 1, 7),
            ("1g.20gb", 2, 1, 4),
            ("2g.20gb", 2, 2, 3),
            ("3g.40gb", 4, 3, 2),
            ("4g.40gb", 4, 4, 1),
            ("7g.80gb", 8, 7, 1),
        ]
    );
    assert_eq!(profiles[3].starts, [0, 4]);
    assert_eq!(
        (&reading.cards[1].mig, reading.cards[1].mig_profiles.len()),
        (&None, 0)
    );
}

#[test]
fn an_instance_is_made_once_found_again_and_destroyed() {
    let scene = Scene::new(&scene(&json!([]), &json!([])));
    let mut reader = Reader::start(&scene.path(), OFTEN);
    let first = made(reader.order(create("2g.20gb", 4)));
    assert!(first.uuid.starts_with("MIG-"));
    assert_eq!((first.start, first.size, first.compute), (4, 2, 2));
    assert_eq!(made(reader.order(create("2g.20gb", 4))), first);
    reader.until("the instance", |now| listed(now) == [("2g.20gb", 4)]);

    let meets = refused(reader.order(create("3g.40gb", 4)));
    assert!(
        meets.starts_with("instance 3g.40gb 4 of card GPU-a: "),
        "{meets}"
    );
    for (profile, start) in [("2g.20gb", 6), ("2g.20gb", 5), ("9g.90gb", 0)] {
        refused(reader.order(create(profile, start)));
    }
    // Another reader finds it, as its makers may restart.
    let mut second = Reader::start(&scene.path(), OFTEN);
    assert_eq!(listed(&second.first()), [("2g.20gb", 4)]);
    assert_eq!(made(second.order(create("2g.20gb", 4))), first);
    assert_eq!(
        second.order(destroy(&first)),
        Outcome::Destroyed(first.gpu_instance)
    );
    assert_eq!(
        second.order(destroy(&first)),
        Outcome::Destroyed(first.gpu_instance)
    );
    reader.until("no instance", |now| listed(now).is_empty());
    made(reader.order(create("3g.40gb", 4)));
}

#[test]
fn an_instance_that_a_process_uses_is_not_destroyed() {
    let used = json!([{"pid": 41, "card": 0, "instance": 1, "memoryMiB": 512}]);
    let none = json!([]);
    let scene_file = Scene::new(&scene(&none, &used));
    let mut reader = Reader::start(&scene_file.path(), OFTEN);
    let (one, two) = (
        made(reader.order(create("1g.10gb", 0))),
        made(reader.order(create("1g.10gb", 1))),
    );
    let why = refused(reader.order(destroy(&one)));
    assert_eq!(
        why,
        "instance 1g.10gb 0 of card GPU-a is in use by process 41 with 512 MiB"
    );
    assert_eq!(reader.order(destroy(&two)), Outcome::Destroyed(2));
    // One whose id another instance has now is not meant.
    let other = MigInstance {
        start: 3,
        ..one.clone()
    };
    assert_eq!(reader.order(destroy(&other)), Outcome::Destroyed(1));
    reader.until("one instance", |now| listed(now) == [("1g.10gb", 0)]);
    scene_file.play(&scene(&none, &none));
    assert_eq!(reader.order(destroy(&one)), Outcome::Destroyed(1));
}

#[test]
fn half_an_instance_is_completed() {
    let bare = json!([{"uuid": "MIG-1", "profile": "2g.20gb", "start": 2, "bare": true}]);
    let scene = Scene::new(&scene(&bare, &json!([])));
    let mut reader = Reader::start(&scene.path(), OFTEN);
    let first = reader.first();
    assert_eq!(first.cards[0].mig.as_ref().unwrap()[0].uuid, "");
    let made = made(reader.order(create("2g.20gb", 2)));
    assert_eq!((made.uuid.as_str(), made.gpu_instance), ("MIG-1", 1));
}
