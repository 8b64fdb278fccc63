//! Expressions that try to exhaust time, memory or the stack are refused or stopped by
//! a limit, on a stack of 2 MiB.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot be set up has failed"
)]

use std::time::Instant;

use proptest::prelude::*;
use tautline_cel::{
    Budget, Environment, EvaluationError, Exhausted, Limits, MAX_SOURCE_BYTES, Resolver,
    ResultType, Type, Value,
};

/// The value of `object` is a list of lists.
struct ListOfLists;

impl Resolver for ListOfLists {
    fn resolve(&self, _: &str, _: &mut Budget) -> Option<Result<Value, EvaluationError>> {
        Some(Ok(Value::list(vec![Value::list(vec![Value::Int(1)])])))
    }
}

fn environment() -> Environment {
    Environment::new()
        .declare("object", Type::Dyn)
        .declare("authorizer", Type::AUTHORIZER)
        .with_patch_types()
}

/// Compiles and evaluates a source.
fn evaluate(source: &str, budget: &mut Budget) -> Result<Value, String> {
    let program = environment()
        .compile(source, ResultType::Any)
        .map_err(|error| error.to_string())?;
    program
        .evaluate(&ListOfLists, budget)
        .map_err(|error| error.to_string())
}

/// Runs `work` on a stack of 2 MiB, the size in a thread of tokio.
fn on_small_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn_scoped(scope, work)
            .unwrap();
        thread
            .join()
            .expect("it neither panics nor overflows its stack")
    })
}

fn chains(length: usize) -> Vec<(&'static str, String)> {
    let around = |open: &str, middle: &str, close: &str| {
        [open.repeat(length), middle.to_owned(), close.repeat(length)].concat()
    };
    vec![
        ("sum", around("", "1", "+1")),
        ("index", around("", "object", "[0]")),
        ("field", around("", "object", ".a")),
        ("optional field", around("", "object", ".?a")),
        ("call", around("", "'a'", ".trim()")),
        ("loop", around("", "[1]", ".map(x,x)")),
        ("nested loop", around("[1].map(x,", "1", ")")),
        ("condition", around("true?1:", "1", "")),
        ("condition within", around("true?(", "1", "):1")),
        ("parentheses", around("(", "1", ")")),
        ("lists", around("[", "1", "]")),
        ("maps", around("{1:", "1", "}")),
        ("objects", around("Object{a:", "1", "}")),
        ("arguments", around("dyn(", "1", ")")),
        ("alternating", around("-(", "1", ")")),
        ("comparison", around("", "true", "==true")),
        ("has", around("has(", "object.a", ".b)")),
    ]
}

#[test]
fn deep_chains_are_refused() {
    on_small_stack(|| {
        for (name, source) in chains(1_200).into_iter().chain(chains(3_000)) {
            let refused = evaluate(&source, &mut Budget::default()).expect_err(name);
            assert!(
                refused.contains("deeper") || refused.contains("bytes"),
                "{name}: {refused}"
            );
        }
    });
}

#[test]
fn deepest_allowed_expressions_run() {
    on_small_stack(|| {
        for (name, source) in chains(45) {
            // Some are wrong for other reasons; none overflows.
            if let Err(reason) = evaluate(&source, &mut Budget::default()) {
                assert!(!reason.contains("nested deeper"), "{name}: {reason}");
            }
        }
        let sum = evaluate(&chains(98)[0].1, &mut Budget::default());
        assert!(matches!(sum, Ok(Value::Int(99))), "{sum:?}");
    });
}

#[test]
fn inferred_types_do_not_double() {
    on_small_stack(|| {
        for start in ["[1]", "[]", "[[]]", "[optional.none()]"] {
            for turn in [".map(x,{x:x})", ".map(x,{x:x,x:x})", ".map(x,{type(x):x})"] {
                let source = format!("{start}{}", turn.repeat(45));
                let program = environment().compile(&source, ResultType::Any);
                let shown = program.map(|p| p.result_type().to_string());
                assert!(shown.is_ok_and(|of| of.len() < 2_000), "{source}");
            }
        }
    });
}

#[test]
fn wide_expressions_are_not_deep() {
    on_small_stack(|| {
        let wide = ["true"; 2_000].join("&&");
        assert!(matches!(
            evaluate(&wide, &mut Budget::default()),
            Ok(Value::Bool(true))
        ));
        assert!(matches!(
            evaluate(
                &format!("{}true", "!".repeat(10_000)),
                &mut Budget::default()
            ),
            Ok(Value::Bool(true))
        ));
    });
}

#[test]
fn long_sources_are_refused() {
    let refused =
        evaluate(&" ".repeat(MAX_SOURCE_BYTES + 1), &mut Budget::default()).expect_err("too long");
    assert!(refused.contains("bytes"), "{refused}");
}

#[test]
fn growing_values_exhaust_the_budget() {
    let times = |start: &str, step: &str, count: usize| format!("{start}{}", step.repeat(count));
    let cases = [
        times("'aaaaaaaaaa'", ".replace('a','aaaaaaaaaa')", 60),
        times("'aaaaaaaaaa'", ".split('').join('aaaaaaaaaa')", 40),
        times("['aaaaaaaaaa'].map(s, s)", ".map(s, s+s)", 60),
        times("[1]", ".map(x, x).map(x,[x,x,x,x]).sum()", 20),
        times("[[1]]", ".map(x,[x,x])", 60),
        format!("{} == {}", times("[1]", ".map(x,[x,x])", 50), times("[1]", ".map(x,[x,x])", 50)),
        "'%s'.format([lists.range(1000).map(x, lists.range(1000))])".to_owned(),
        "lists.range(1000000000000)".to_owned(),
        "lists.range(9223372036854775807)".to_owned(),
        "lists.range(3000).map(x, lists.range(3000))".to_owned(),
        "lists.range(3000).all(x, lists.range(3000).all(y, true))".to_owned(),
        "lists.range(3000).distinct()".to_owned(),
        "sets.equivalent(lists.range(3000), lists.range(3000).reverse())".to_owned(),
        "lists.range(3000).exists(x, lists.range(3000).exists(y, 1 / 0 > 0))".to_owned(),
        "lists.range(3000).exists(x, lists.range(3000).exists(y, 1 / 0 > 0)) || true".to_owned(),
        "lists.range(2000).map(x, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa').join().matches('(a?){200}b') || lists.range(2000).map(x, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa').join().matches('(a?){300}c')".to_owned(),
        "lists.range(2000).map(x, '(a{' + string(900 - x % 300) + '}){50}').exists(p, 'a'.matches(p))".to_owned(),
        "lists.range(1000).map(x, '%.1000f%.1000f'.format([1e300, 1e300])).size()".to_owned(),
        times("lists.range(100)", ".transformMap(i, v, lists.range(100))", 1) + ".transformList(k, v, v.map(x, v.map(y, v)))",
        "lists.range(5000).transformMapEntry(i, v, {string(i) + string(v): lists.range(100)})".to_owned(),
    ];
    for source in cases {
        let limits = Limits::default();
        let mut budget = Budget::new(limits);
        let found = evaluate(&source, &mut budget);
        assert!(found.is_err(), "{source} has a value");
        assert!(
            budget.exhausted().is_some(),
            "{source}: {found:?}, at {} units",
            budget.cost_units()
        );
    }
}

#[test]
fn exhausted_budget_stays_exhausted() {
    let mut budget = Budget::new(Limits {
        cost_units: 100,
        ..Limits::default()
    });
    evaluate("lists.range(50).all(x, true)", &mut budget).expect_err("too much");
    assert_eq!(budget.exhausted(), Some(Exhausted::Cost(100)));
    evaluate("true", &mut budget).expect_err("nothing is left");
}

#[test]
fn deadline_stops_evaluation() {
    let mut budget = Budget::new(Limits {
        deadline: Some(Instant::now()),
        ..Limits::default()
    });
    evaluate("lists.range(1000).all(x, true)", &mut budget).expect_err("late");
    assert_eq!(budget.exhausted(), Some(Exhausted::Deadline));
}

#[test]
fn results_are_bounded() {
    let mut budget = Budget::new(Limits {
        output_bytes: 100,
        ..Limits::default()
    });
    evaluate("lists.range(50)", &mut budget).expect_err("too large");
    assert_eq!(budget.exhausted(), Some(Exhausted::Output(100)));
}

#[test]
fn patterns_are_bounded() {
    for pattern in [
        "(a{1000}){1000}",
        "((a{100}){100}){100}",
        "\\\\pL{1000}",
        "(\\\\w{1000}|\\\\pL{900})*",
    ] {
        evaluate(&format!("'a'.matches('{pattern}')"), &mut Budget::default()).expect_err(pattern);
    }
}

#[test]
fn literal_patterns_together_are_bounded() {
    let source = format!(
        "[{}]",
        ["'a'.matches('(\\\\pL|\\\\pN){40}')"; 400].join(",")
    );
    let error = environment()
        .compile(&source, ResultType::Any)
        .expect_err("too many");
    assert!(error.to_string().contains("together"), "{error}");
}

/// Pieces of expressions, so that many of their strings are some.
fn soup() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "object",
        "1",
        "-",
        "'a'",
        "\"",
        "b'\\xff'",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ".",
        "?",
        ":",
        ",",
        "+",
        "==",
        "&&",
        "||",
        "!",
        "in",
        "x",
        ".map(x,",
        ".filter(x,",
        ".all(x, y,",
        ".transformMap(k, v,",
        ".sortBy(e,",
        ".?a",
        "[?0]",
        "dyn(",
        "Object{",
        "Object.a{b:",
        "JSONPatch{op:",
        "quantity('1k')",
        ".size()",
        ".format([",
        "'%s%d'",
        "1u",
        "1.5",
        "null",
        "true",
        "duration('1s')",
        "timestamp(0)",
        "ip('::1')",
        "optional.of(",
        ".orValue(",
        "é",
        "\n",
        "//",
        "/",
        "%",
        ".split('')",
        ".join()",
        ".flatten()",
        ".sum()",
        "has(",
        "url('http://a/?b=%c')",
        "cidr('1.2.3.4/8')",
    ]);
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat())
}

#[test]
fn zones_of_times_are_read_by_character() {
    for (zone, wrong) in [
        ("+01:00", false),
        ("+€00", true),
        ("-éé0", true),
        ("+0€0", true),
    ] {
        let source = format!("format.datetime().validate('2021-01-01T00:00:00{zone}').hasValue()");
        let found = evaluate(&source, &mut Budget::default());
        assert!(
            matches!(found, Ok(Value::Bool(is)) if is == wrong),
            "{zone}: {found:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_expressions_do_not_panic(source in soup()) {
        let mut budget = Budget::default();
        let _ = evaluate(&source, &mut budget).map(|value| value.to_json());
    }

    #[test]
    fn random_text_does_not_panic(source in "\\PC{0,60}") {
        let _ = evaluate(&source, &mut Budget::default());
    }

    #[test]
    fn string_literals_equal_themselves(text in "\\PC{0,40}") {
        let quoted = serde_json::to_string(&text).unwrap();
        let same = evaluate(&format!("{quoted} == {quoted} && {quoted}.size() >= 0"), &mut Budget::default());
        prop_assert!(matches!(same, Ok(Value::Bool(true))), "{same:?}");
    }

    #[test]
    fn library_functions_take_any_text(text in "\\PC{0,30}") {
        let quoted = serde_json::to_string(&text).unwrap();
        for function in ["isQuantity", "isURL", "isIP", "isCIDR", "isSemver"] {
            let found = evaluate(&format!("{function}({quoted})"), &mut Budget::default());
            prop_assert!(matches!(found, Ok(Value::Bool(_))), "{function}: {found:?}");
        }
        for call in ["url(dyn(T))", "timestamp(dyn(T))", "duration(dyn(T))", "quantity(T)", "'a'.matches(dyn(T))", "T.split('').join()", "T.format([1])", "format.datetime().validate(T)", "format.dns1123LabelPrefix().validate(T)"] {
            let _ = evaluate(&call.replace('T', &quoted), &mut Budget::default());
        }
    }
}
