use tautline_proto::ruleprovider::{CostUpdate, CostWatch, IndexedCost, QuestionCosts};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

const KEY: Bytes = Bytes::from_static(b"");
const OTHER: Bytes = Bytes::from_static(b"\x1a\0");

fn nodes(indexes: std::ops::Range<u32>) -> IndexChanges {
    IndexChanges {
        removed: Vec::new(),
        added: indexes.map(|i| (i, format!("n{i}").into())).collect(),
    }
}

/// A stream that has begun with two nodes and has been heard of.
fn begun(now: Instant) -> (CostStream, UnboundedReceiver<CostWatch>) {
    let (out, sent) = unbounded_channel();
    let mut stream = CostStream::default();
    stream.begin(out, nodes(0..2), Vec::new(), now);
    stream.apply(through(1), now);
    (stream, sent)
}

fn through(through: u64) -> CostUpdate {
    CostUpdate {
        through,
        ..CostUpdate::default()
    }
}

fn lines(question: u64, lines: &[(u32, i64)]) -> CostUpdate {
    let line = |(index, cost): &(u32, i64)| IndexedCost {
        index: *index,
        cost: *cost,
        ..IndexedCost::default()
    };
    CostUpdate {
        costs: vec![QuestionCosts {
            question,
            lines: lines.iter().map(line).collect(),
            ..QuestionCosts::default()
        }],
        ..CostUpdate::default()
    }
}

fn costs(stream: &mut CostStream, nodes: &[u32], now: Instant) -> String {
    match stream.lookup(&KEY, &nodes.into(), now) {
        Lookup::Costs(costs, _) => {
            let costs = (0..nodes.len()).map(|at| costs.get(at).map_or(-9, |c| c));
            format!("{:?}", costs.collect::<Vec<_>>())
        }
        Lookup::Failed(status) => format!("{:?}", status.code()),
        Lookup::Wait => "wait".to_owned(),
        Lookup::Call => "call".to_owned(),
    }
}

#[test]
fn a_table_is_used_once_through_has_passed_all_that_counts() {
    let now = Instant::now();
    let (mut stream, mut sent) = begun(now);
    assert_eq!(costs(&mut stream, &[0], now), "call", "the first pod");
    assert_eq!(costs(&mut stream, &[0], now), "wait", "opened");
    stream.apply(lines(1, &[(0, 5), (1, 6), (7, 8)]), now);
    assert_eq!(costs(&mut stream, &[0, 1], now), "wait");
    stream.apply(through(2), now);
    assert_eq!(costs(&mut stream, &[1, 0, 7], now), "[6, 5, -9]");
    // A pod is placed.
    stream.change_pods(CostWatch::default());
    assert_eq!(costs(&mut stream, &[0], now), "wait");
    stream.apply(lines(1, &[(0, 9)]), now);
    stream.apply(through(3), now);
    assert_eq!(costs(&mut stream, &[0, 1], now), "[9, 6]");
    // A node comes, another one goes, and its index comes again.
    let mut changes = nodes(2..3);
    changes.removed.push(1);
    stream.change_nodes(&changes);
    stream.apply(lines(1, &[(2, 3)]), now);
    stream.apply(through(4), now);
    assert_eq!(costs(&mut stream, &[0, 1, 2], now), "[9, -9, 3]");
    // Opening a question does not make others wait.
    stream.lookup(&OTHER, &[].into(), now);
    assert!(matches!(
        stream.lookup(&OTHER, &[].into(), now),
        Lookup::Wait
    ));
    assert_eq!(costs(&mut stream, &[0], now), "[9]");
    let mut numbers = Vec::new();
    while let Ok(message) = sent.try_recv() {
        numbers.push(message.sequence);
    }
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

#[test]
fn a_through_of_what_was_never_sent_does_not_count() {
    let now = Instant::now();
    let (mut stream, _sent) = begun(now);
    costs(&mut stream, &[0], now);
    costs(&mut stream, &[0], now);
    stream.apply(through(99), now);
    assert_eq!(costs(&mut stream, &[0], now), "wait");
    stream.apply(through(2), now);
    assert_eq!(costs(&mut stream, &[0], now), "[-9]");
}

#[test]
fn a_silent_or_broken_stream_is_replaced_by_calls() {
    let now = Instant::now();
    let (mut stream, _sent) = begun(now);
    costs(&mut stream, &[0], now);
    costs(&mut stream, &[0], now);
    stream.apply(lines(1, &[(0, 5)]), now);
    stream.apply(through(2), now);
    assert_eq!(costs(&mut stream, &[0], now), "[5]");
    assert_eq!(costs(&mut stream, &[0], now + SILENCE_TIMEOUT), "call");
    stream.apply(through(2), now + SILENCE_TIMEOUT);
    assert_eq!(costs(&mut stream, &[0], now + SILENCE_TIMEOUT), "[5]");
    stream.end();
    assert_eq!(costs(&mut stream, &[0], now + SILENCE_TIMEOUT), "call");
    // The next one begins from nothing, with the open question.
    let (out, mut sent) = unbounded_channel();
    stream.begin(out, nodes(0..1), Vec::new(), now + SILENCE_TIMEOUT);
    assert_eq!(costs(&mut stream, &[0], now + SILENCE_TIMEOUT), "call");
    let first = sent.try_recv().unwrap();
    assert_eq!(
        (first.opened_questions.len(), first.added_nodes.len()),
        (1, 1)
    );
    let id = first.opened_questions[0].id;
    stream.apply(lines(1, &[(0, 5)]), now + SILENCE_TIMEOUT);
    stream.apply(lines(id, &[(0, 6)]), now + SILENCE_TIMEOUT);
    stream.apply(through(1), now + SILENCE_TIMEOUT);
    assert_eq!(costs(&mut stream, &[0], now + SILENCE_TIMEOUT), "[6]");
}

#[test]
fn questions_are_bounded_and_closed() {
    let now = Instant::now();
    let (mut stream, mut sent) = begun(now);
    let key = |i: u8| Bytes::from(vec![0x2a, 1, i]);
    for i in 0..=u8::try_from(MAX_QUESTIONS).unwrap() {
        let now = now + Duration::from_millis(i.into());
        stream.lookup(&key(i), &[].into(), now);
        stream.lookup(&key(i), &[].into(), now);
    }
    assert_eq!(stream.open_questions(), MAX_QUESTIONS);
    stream.close_unused(now + UNUSED_TIMEOUT + Duration::from_millis(9));
    assert_eq!(stream.open_questions(), MAX_QUESTIONS - 9);
    let mut closed = Vec::new();
    while let Ok(message) = sent.try_recv() {
        closed.extend(message.closed_questions);
    }
    closed.sort_unstable();
    assert_eq!(closed, (1..=10).collect::<Vec<_>>());
}
