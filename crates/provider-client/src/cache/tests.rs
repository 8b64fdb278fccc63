use super::*;
use tautline_core::planning::CostDetail;
use tautline_proto::endpoint_cost::{NodeCost, put_validity};

fn key(provider: &str) -> Key {
    Key::new(provider.into(), Bytes::from_static(&[1]))
}

fn there() -> Address {
    Address {
        host: "10.0.0.1".into(),
        port: 5309,
    }
}

fn set(names: &[&str]) -> NodeSet {
    names.iter().copied().collect()
}

/// Known costs of `names`, and the missing names.
fn known(cache: &Cache, names: &[&str]) -> Option<(Vec<Option<i64>>, Vec<String>)> {
    let nodes = set(names);
    let (costs, missing) = match cache.find(&key("ns/p"), &nodes, false) {
        Lookup::Hit { costs, .. } => (costs, NodeSet::default()),
        Lookup::Partial(PartialCosts { costs, missing }) => (costs, missing),
        _ => return None,
    };
    let costs = (0..nodes.len()).map(|at| costs.get(at)).collect();
    Some((costs, missing.iter().map(str::to_owned).collect()))
}

fn put(cache: &Cache, lines: &[(&str, i64)], unnamed: &[&str], millis: i64) {
    put_at(cache, lines, unnamed, millis, Instant::now());
}

fn put_at(cache: &Cache, lines: &[(&str, i64)], unnamed: &[&str], millis: i64, start: Instant) {
    let mut nodes = set(unnamed);
    for (name, _) in lines {
        nodes.insert(name);
    }
    let mut costs = Costs::new(nodes.len());
    for (name, cost) in lines {
        let code = if *cost < 0 { "Full" } else { "" };
        let note = CostDetail {
            code,
            ..CostDetail::default()
        };
        costs.add(&nodes, name, *cost, note);
    }
    let valid = Validity {
        millis,
        ..Validity::default()
    };
    let answer = Answer { costs, valid };
    cache.insert(key("ns/p"), &nodes, &answer, &there(), start);
}

#[tokio::test(start_paused = true)]
async fn cache_merges_answers_about_other_nodes() {
    let cache = Cache::default();
    put(&cache, &[("a", 5), ("b", -1)], &["gone"], 100);
    assert_eq!(
        known(&cache, &["b", "a", "gone"]).unwrap(),
        (vec![Some(-1), Some(5), None], vec![])
    );
    let Lookup::Hit { costs: of_b, .. } = cache.find(&key("ns/p"), &set(&["b"]), false) else {
        panic!("b is not known");
    };
    assert_eq!(of_b.detail(0).unwrap().code, "Full");
    assert_eq!(known(&cache, &["d"]), None);
    let other = cache.find(&key("ns/q"), &set(&["a"]), false);
    assert!(matches!(other, Lookup::Miss), "{other:?}");

    tokio::time::advance(Duration::from_millis(60)).await;
    let missing = vec!["d".to_owned()];
    assert_eq!(
        known(&cache, &["a", "d"]).unwrap(),
        (vec![Some(5), None], missing)
    );
    put(&cache, &[("d", 7), ("b", 3)], &[], 100);
    let all = ["a", "b", "d", "gone"];
    assert_eq!(
        known(&cache, &all).unwrap(),
        (vec![Some(5), Some(3), Some(7), None], vec![])
    );
    tokio::time::advance(Duration::from_millis(41)).await;
    let missing = vec!["a".to_owned(), "gone".to_owned()];
    assert_eq!(
        known(&cache, &all).unwrap(),
        (vec![None, Some(3), Some(7), None], missing)
    );
    tokio::time::advance(Duration::from_millis(60)).await;
    assert_eq!(known(&cache, &all), None);
}

#[tokio::test(start_paused = true)]
async fn cache_drops_ended_lines() {
    let cache = Cache::default();
    for round in 0..400_i64 {
        let name = |n: i64| format!("node-{}", (3 * round + n) % (20 + round));
        let mut nodes: Vec<String> = (0..10).map(name).collect();
        if round % 2 == 0 {
            nodes.reverse();
        }
        let lines: Vec<(&str, i64)> = nodes.iter().map(|n| (&**n, round % 5 - 1)).collect();
        put(&cache, &lines, &["gone"], 50);
        let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let (costs, missing) = known(&cache, &names).unwrap();
        assert_eq!(costs, vec![Some(round % 5 - 1); names.len()]);
        assert!(missing.is_empty());
        tokio::time::advance(Duration::from_millis(5)).await;
        let entry = cache.entries.get(&key("ns/p").hash).unwrap();
        // Ten rounds' lines are valid; some ended ones may remain.
        let (lines, bytes) = (entry.nodes.len(), entry.costs.heap_bytes());
        assert!(
            lines <= 2 * 10 * 11 + 11 && bytes < 20_000,
            "{lines} lines, {bytes} bytes"
        );
    }
}

fn reply(lines: &[(&str, i64)], version: u64, changed_since: u64) -> RawAnswer {
    fresh(lines, version, changed_since, 0)
}

type Said = Option<Vec<Option<i64>>>;

fn advance(cache: &Cache, known: &CachedVersion, names: &[&str], answer: &RawAnswer) -> Said {
    let costs = cache.apply_changes(&key("ns/p"), known, answer, &set(names), Instant::now());
    let costs = costs.unwrap()?;
    Some((0..names.len()).map(|at| costs.get(at)).collect())
}

fn fresh(lines: &[(&str, i64)], version: u64, changed_since: u64, millis: i64) -> RawAnswer {
    let mut bytes = Vec::new();
    for (node, cost) in lines {
        let line = NodeCost {
            node,
            cost: *cost,
            ..NodeCost::default()
        };
        line.put(&mut bytes);
    }
    let valid = Validity {
        millis,
        version,
        changed_since,
        ..Validity::default()
    };
    put_validity(valid, &mut bytes);
    RawAnswer::new(bytes.into())
}

fn as_of(cache: &Cache, names: &[&str]) -> Option<CachedVersion> {
    match cache.find(&key("ns/p"), &set(names), false) {
        Lookup::Versioned(known) => Some(known),
        _ => None,
    }
}

/// A full answer about these nodes.
fn put_full(cache: &Cache, names: &[&str], answer: &RawAnswer) {
    let nodes = set(names);
    let answer = answer.read(&nodes).unwrap();
    cache.insert(key("ns/p"), &nodes, &answer, &there(), Instant::now());
}

#[tokio::test(start_paused = true)]
async fn cache_applies_changes_to_versioned_lines() {
    let cache = Cache::default();
    put_full(&cache, &["a", "gone"], &reply(&[("a", 5)], 10, 0));
    let one = as_of(&cache, &["b", "a"]).unwrap();
    assert_eq!((one.version, &*one.endpoint), (10, &there()));
    assert_eq!(one.missing.iter().collect::<Vec<_>>(), ["b"]);
    // Full, or since another version, or without one: not about these lines.
    for not in [reply(&[], 11, 0), reply(&[], 11, 9), reply(&[], 0, 10)] {
        assert_eq!(advance(&cache, &one, &["b", "a"], &not), None);
    }
    let changes = reply(&[("b", 2), ("gone", 8), ("not requested", 1)], 12, 10);
    let costs = advance(&cache, &one, &["b", "a"], &changes);
    assert_eq!(costs, Some(vec![Some(2), Some(5)]));
    let all = as_of(&cache, &["gone", "a", "b"]).unwrap();
    assert_eq!((all.version, all.missing.len()), (12, 0));
    let costs = advance(&cache, &all, &["gone", "a", "b"], &reply(&[], 12, 12));
    assert_eq!(costs, Some(vec![Some(8), Some(5), Some(2)]));
    tokio::time::advance(MAX_AGE).await;
    assert!(as_of(&cache, &["a"]).is_none(), "all is requested again");
}

#[tokio::test(start_paused = true)]
async fn versioned_answer_is_reused_while_valid() {
    let cache = Cache::default();
    let both = ["a", "b"];
    let lines = [("a", 5), ("b", 6)];
    put_full(&cache, &both, &fresh(&lines, 10, 0, 20));
    let actual = known(&cache, &["b", "a"]).unwrap();
    assert_eq!(actual, (vec![Some(6), Some(5)], vec![]));
    // Requested all the same: a pod with an allocation, and an unknown node.
    let placed = cache.find(&key("ns/p"), &set(&both), true);
    assert!(matches!(placed, Lookup::Versioned(_)), "{placed:?}");
    let more = as_of(&cache, &["a", "c"]).unwrap();
    let answer = fresh(&[("c", 7)], 10, 10, 15);
    let costs = advance(&cache, &more, &["a", "c"], &answer);
    assert_eq!(costs, Some(vec![Some(5), Some(7)]));
    tokio::time::advance(Duration::from_millis(14)).await;
    assert!(known(&cache, &["c", "a"]).is_some());
    tokio::time::advance(Duration::from_millis(1)).await;
    let begun = as_of(&cache, &both).unwrap();
    assert_eq!(begun.version, 10);
    let costs = advance(&cache, &begun, &both, &fresh(&[("a", 1)], 11, 10, 20));
    assert_eq!(costs, Some(vec![Some(1), Some(6)]));
    assert!(known(&cache, &both).is_some());
    // It took long: its validity is over.
    tokio::time::advance(Duration::from_millis(20)).await;
    let (begun, start) = (as_of(&cache, &both).unwrap(), Instant::now());
    tokio::time::advance(Duration::from_millis(30)).await;
    let late = fresh(&[], 11, 11, 20);
    let costs = cache.apply_changes(&key("ns/p"), &begun, &late, &set(&both), start);
    assert!(costs.unwrap().is_some());
    assert_eq!(as_of(&cache, &both).unwrap().version, 11);
    // An answer without validity.
    tokio::time::advance(Duration::from_millis(20)).await;
    let begun = as_of(&cache, &both).unwrap();
    advance(&cache, &begun, &both, &reply(&[], 11, 11)).unwrap();
    assert_eq!(as_of(&cache, &both).unwrap().version, 11);
}

#[tokio::test(start_paused = true)]
async fn cache_keeps_the_later_version() {
    let cache = Cache::default();
    put_full(&cache, &["a", "b"], &reply(&[("a", 5), ("b", 6)], 10, 0));
    let begun = || as_of(&cache, &["a", "b"]).unwrap();
    let (early, late) = (begun(), begun());
    let lacking = as_of(&cache, &["a", "c"]).unwrap();
    let of_late = reply(&[("a", 1)], 12, 10);
    let costs = advance(&cache, &late, &["a", "b"], &of_late);
    assert_eq!(costs, Some(vec![Some(1), Some(6)]));
    // The answer to an earlier version is older than the cached lines.
    let costs = advance(&cache, &early, &["a", "b"], &reply(&[("a", 3)], 11, 10));
    assert_eq!(costs, Some(vec![Some(1), Some(6)]));
    let of_lacking = reply(&[("a", 3), ("c", 9)], 11, 10);
    assert_eq!(advance(&cache, &lacking, &["a", "c"], &of_lacking), None);
    assert_eq!(begun().version, 12);
    // The same version, and a later one.
    for (version, cost) in [(12, 1), (13, 4)] {
        let answer = reply(&[("a", cost), ("c", 9)], version, 10);
        let costs = advance(&cache, &lacking, &["a", "c"], &answer);
        assert_eq!(costs, Some(vec![Some(cost), Some(9)]), "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn cache_distinguishes_positions_of_answers() {
    let cache = Cache::default();
    let lines = [("a", 1), ("b", 2), ("c", 3)];
    put_full(&cache, &["a", "b", "c"], &reply(&lines, 10, 0));
    let begun = as_of(&cache, &["a", "b", "c"]).unwrap();
    // Another full answer meanwhile: the same version, other nodes and positions.
    put_full(&cache, &["c", "b"], &reply(&lines[1..], 10, 0));
    assert_eq!(
        advance(&cache, &begun, &["a", "b", "c"], &reply(&[], 10, 10)),
        None
    );
    // An answer for one pod leaves the shared lines.
    let begun = as_of(&cache, &["b", "c"]).unwrap();
    put_full(&cache, &["b", "c"], &reply(&lines[1..], 0, 0));
    let costs = advance(&cache, &begun, &["b", "c"], &reply(&[], 10, 10));
    assert_eq!(costs, Some(vec![Some(2), Some(3)]));
}

#[tokio::test(start_paused = true)]
async fn cache_skips_answers_without_validity() {
    let cache = Cache::default();
    put(&cache, &[("a", 5)], &[], 0);
    put(&cache, &[("a", 5)], &[], -3);
    assert_eq!(known(&cache, &["a"]), None);
}

#[tokio::test(start_paused = true)]
async fn cache_uses_the_latest_resolution_and_request_cost() {
    let (cache, both) = (Cache::default(), ["a", "b"]);
    let answer = |names: &[&str], resolution, version, changed_since| {
        let mut bytes = Vec::new();
        for node in names {
            let line = NodeCost {
                node,
                cost: 5,
                ..NodeCost::default()
            };
            line.put(&mut bytes);
        }
        let valid = Validity {
            millis: 100,
            version,
            changed_since,
            resolution,
            request_cost: Some(resolution),
        };
        put_validity(valid, &mut bytes);
        RawAnswer::new(bytes.into())
    };
    let put = |names: &[&str], resolution, start| {
        let nodes = set(names);
        let answer = answer(names, resolution, 0, 0).read(&nodes).unwrap();
        cache.insert(key("ns/p"), &nodes, &answer, &there(), start);
    };
    let figure = |costs: &Costs| {
        assert_eq!(costs.request_cost, Some(costs.resolution));
        costs.resolution
    };
    let of_both = || match cache.find(&key("ns/p"), &set(&both), false) {
        Lookup::Hit { costs, .. } => figure(&costs),
        other => panic!("{other:?}"),
    };
    let earlier = Instant::now();
    tokio::time::advance(Duration::from_millis(10)).await;
    put(&["a"], 7, Instant::now());
    match cache.find(&key("ns/p"), &set(&both), false) {
        Lookup::Partial(part) => {
            let actual = answer(&["b"], 8, 0, 0).read(&part.missing).unwrap();
            assert_eq!(figure(&part.merge(&actual.costs, &set(&both))), 8);
        }
        other => panic!("{other:?}"),
    }
    put(&["b"], 8, Instant::now());
    assert_eq!(of_both(), 8);
    put(&["c"], 9, earlier);
    assert_eq!(of_both(), 8, "it was requested before");

    put_full(&cache, &both, &answer(&both, 3, 10, 0));
    assert_eq!(of_both(), 3);
    tokio::time::advance(Duration::from_millis(100)).await;
    let begun = as_of(&cache, &both).unwrap();
    advance(&cache, &begun, &both, &answer(&["a"], 4, 12, 10)).unwrap();
    assert_eq!(of_both(), 4);
    advance(&cache, &begun, &both, &answer(&["a"], 5, 11, 10)).unwrap();
    assert_eq!(of_both(), 4, "it is of an earlier version");
}

/// The refresh time if all `names` are known, for the first caller only.
fn ahead(cache: &Cache, names: &[&str]) -> Option<Instant> {
    match cache.find(&key("ns/p"), &set(names), false) {
        Lookup::Hit {
            refresh_at: ahead, ..
        } => ahead,
        other => panic!("{other:?}"),
    }
}

/// The nodes of each refresh request.
fn lines_again(cache: &Cache, due: Instant) -> Option<Vec<Vec<String>>> {
    let names = |nodes: &NodeSet| nodes.iter().map(str::to_owned).collect();
    match cache.refresh_plan(&key("ns/p"), due)? {
        RefreshPlan::Lines(questions) => Some(questions.iter().map(names).collect()),
        RefreshPlan::Changes(known) => panic!("{known:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn cache_refreshes_a_used_answer_once() {
    let (cache, start) = (Cache::default(), Instant::now());
    put(&cache, &[("a", 5), ("b", 6)], &[], 800);
    let due = ahead(&cache, &["a"]).unwrap();
    assert_eq!(due - start, Duration::from_millis(700));
    assert_eq!(ahead(&cache, &["a"]), None, "somebody sees to it");
    // An answer about other nodes is cached next to it: both are refreshed.
    tokio::time::advance(Duration::from_millis(100)).await;
    put(&cache, &[("c", 7)], &[], 800);
    assert_eq!(ahead(&cache, &["c"]), None);
    tokio::time::advance(Duration::from_millis(600)).await;
    assert_eq!(lines_again(&cache, due).unwrap(), [["a", "b", "c"]]);
    put(&cache, &[("a", 1), ("b", 1), ("c", 1)], &[], 800);
    assert_eq!(lines_again(&cache, due), None, "it has been renewed");
    let next = ahead(&cache, &["c", "a"]).unwrap();
    assert_eq!(next - due, Duration::from_millis(700));
    // Not used again in time: ended lines are not refreshed.
    tokio::time::advance(Duration::from_millis(750)).await;
    put(&cache, &[("b", 2)], &[], 800);
    let due = ahead(&cache, &["b"]).unwrap();
    tokio::time::advance(Duration::from_millis(700)).await;
    assert_eq!(lines_again(&cache, due).unwrap(), [["b"]]);
    // A late answer to an earlier request replaces nothing newer.
    let earlier = Instant::now();
    tokio::time::advance(Duration::from_millis(50)).await;
    put(&cache, &[("b", 3), ("d", 4)], &[], 800);
    put_at(&cache, &[("b", 9), ("e", 9)], &[], 800, earlier);
    let costs = known_costs(&cache, &["b", "d", "e"]);
    assert_eq!(costs, [Some(3), Some(4), Some(9)]);
}

#[tokio::test(start_paused = true)]
async fn refresh_plan_splits_many_nodes() {
    let cache = Cache::default();
    let names: Vec<String> = (0..=REFRESH_CHUNK_NODES)
        .map(|n| format!("node-{n}"))
        .collect();
    let lines: Vec<(&str, i64)> = names.iter().map(|name| (&**name, 1)).collect();
    put(&cache, &lines, &[], 800);
    let due = ahead(&cache, &["node-7"]).unwrap();
    tokio::time::advance(Duration::from_millis(700)).await;
    let questions = lines_again(&cache, due).unwrap();
    assert_eq!(questions.concat(), names);
    assert_eq!(questions[1], names[REFRESH_CHUNK_NODES..]);
}

#[tokio::test(start_paused = true)]
async fn cache_misses_after_the_maximum_age() {
    let cache = Cache::default();
    put(&cache, &[("gone", -1), ("a", 5)], &[], 2_000);
    let mut renewed = 0;
    while let Some(due) = ahead(&cache, &["a"]) {
        tokio::time::advance(due - Instant::now()).await;
        let Some(nodes) = lines_again(&cache, due) else {
            break;
        };
        assert_eq!(nodes, [["gone", "a"]]);
        put(&cache, &[("gone", -1), ("a", 5)], &[], 2_000);
        renewed += 1;
    }
    assert_eq!(renewed, 31);
}

#[tokio::test(start_paused = true)]
async fn refresh_plan_requests_changes_of_versioned_lines() {
    let cache = Cache::default();
    let both = ["a", "b"];
    put_full(&cache, &both, &fresh(&[("a", 5), ("b", 6)], 10, 0, 30));
    let due = ahead(&cache, &both).unwrap();
    tokio::time::advance(Duration::from_millis(22)).await;
    assert_eq!(due, Instant::now());
    let Some(RefreshPlan::Changes(known)) = cache.refresh_plan(&key("ns/p"), due) else {
        panic!("nothing to ask for");
    };
    assert_eq!((known.version, known.missing.len()), (10, 0));
    let changes = fresh(&[("a", 1)], 11, 10, 30);
    assert_eq!(advance(&cache, &known, &[], &changes), Some(vec![]));
    let actual = known_costs(&cache, &both);
    assert_eq!(actual, [Some(1), Some(6)]);
    assert!(cache.refresh_plan(&key("ns/p"), due).is_none());
    // An answer for one pod is not refreshed for others.
    let begun = as_of(&cache, &["a", "c"]).unwrap();
    advance(&cache, &begun, &["a", "c"], &reply(&[], 11, 11)).unwrap();
    assert!(as_of(&cache, &both).is_some());
}

fn known_costs(cache: &Cache, names: &[&str]) -> Vec<Option<i64>> {
    known(cache, names).unwrap().0
}
