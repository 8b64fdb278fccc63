//! Hostile policies for the tests, and for the benchmark that prints their time and memory.

use serde_json::{Value, json};

/// How a hostile policy ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// It is rejected when it is loaded.
    Refused,
    /// It is loaded, and a limit stops its evaluations.
    Stopped,
    /// It takes little, or fails by itself.
    Harmless,
}

/// A hostile policy.
pub struct Hostile {
    /// Its attack.
    pub name: &'static str,
    /// How it ends.
    pub ends: Ends,
    /// Its spec.
    spec: Value,
}

impl Hostile {
    /// The policy and its binding.
    pub fn manifests(&self) -> [Value; 2] {
        manifests("hostile", &self.spec)
    }
}

/// A policy with a name, and its binding.
pub fn manifests(name: &str, spec: &Value) -> [Value; 2] {
    let of = |kind, spec| {
        json!({"apiVersion": "tautline.io/v1alpha1", "kind": kind,
            "metadata": {"name": name}, "spec": spec})
    };
    [
        of("MutationPolicy", spec.clone()),
        of("MutationPolicyBinding", json!({"policyName": name})),
    ]
}

/// An object of a kind without a schema, so that only the limits stop a policy.
pub fn object() -> Value {
    let items: Vec<u32> = (0..10_000).collect();
    json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "demo", "namespace": "default"},
        "spec": {"items": items, "text": "x".repeat(1_000)}})
}

/// A policy that sets one field.
pub fn innocent() -> [Value; 2] {
    manifests("innocent", &spec(&[], &[MARK]))
}

/// The mutation of the innocent policy.
pub const MARK: &str = "[JSONPatch{op: 'add', path: '/spec/mark', value: 'seen'}]";

/// Variables in their order, and JSON patches. The failurePolicy is Ignore, so
/// that others go on.
fn spec(variables: &[(String, String)], patches: &[&str]) -> Value {
    let variables: Vec<Value> = variables
        .iter()
        .map(|(name, expression)| json!({"name": name, "expression": expression}))
        .collect();
    let mutations: Vec<Value> = patches
        .iter()
        .map(|p| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": p}}))
        .collect();
    json!({"failurePolicy": "Ignore", "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"],
            "operations": ["*"], "resources": ["*"]}]},
        "variables": variables, "mutations": mutations})
}

/// A policy that needs one value.
fn value(expression: impl Into<String>) -> Value {
    chain(vec![expression.into()])
}

/// Variables `v0`, `v1` and so on, of which the last is needed.
fn chain(expressions: Vec<String>) -> Value {
    let named = expressions.into_iter().enumerate();
    let variables: Vec<(String, String)> = named.map(|(i, e)| (format!("v{i}"), e)).collect();
    let last = format!(
        "type(variables.v{}) == int ? {MARK} : []",
        variables.len() - 1
    );
    spec(&variables, &[&last])
}

/// `v0` is `first`, and each of `count` more is `next` of the one before, `$`.
fn grown(first: &str, next: &str, count: usize) -> Value {
    let more = (0..count).map(|i| next.replace('$', &format!("variables.v{i}")));
    chain(std::iter::once(first.to_owned()).chain(more).collect())
}

fn around(open: &str, middle: &str, close: &str, times: usize) -> Value {
    value(format!(
        "{}{middle}{}",
        open.repeat(times),
        close.repeat(times)
    ))
}

/// A string of 2^`doublings` kilobytes as `v0`, then `expression` over it, `$`.
fn over_text(doublings: usize, expression: &str) -> Value {
    let mut all = vec!["object.spec.text".to_owned()];
    for i in 0..doublings {
        all.push(format!("variables.v{i} + variables.v{i}"));
    }
    all.push(expression.replace('$', &format!("variables.v{doublings}")));
    chain(all)
}

/// Every one.
pub fn all() -> Vec<Hostile> {
    let of = |ends| move |(name, spec)| Hostile { name, ends, spec };
    let deep = deep().into_iter().map(of(Ends::Refused));
    let wide = wide().into_iter().map(of(Ends::Harmless));
    let growing = growing().into_iter().map(of(Ends::Stopped));
    let slow = slow().into_iter().map(of(Ends::Stopped));
    let odd = odd().into_iter().map(of(Ends::Harmless));
    let patching = patching().into_iter().map(of(Ends::Stopped));
    deep.chain(wide)
        .chain(growing)
        .chain(slow)
        .chain(odd)
        .chain(patching)
        .collect()
}

/// Sources too deep or too large.
fn deep() -> Vec<(&'static str, Value)> {
    let pattern = |source: String| value(format!("object.spec.text.matches({source:?}) ? 1 : 2"));
    let nested = |count: usize| {
        let open: String = (0..count)
            .map(|i| format!("object.spec.items.all(x{i}, "))
            .collect();
        value(format!("{open}true{}", ")".repeat(count)))
    };
    vec![
        ("5,000 parentheses", around("(", "1", ")", 5_000)),
        ("5,000 lists", around("[", "", "]", 5_000)),
        ("3,000 maps", around("{1:", "1", "}", 3_000)),
        ("5,000 sums", around("1+", "1", "", 5_000)),
        ("3,000 sums of strings", around("'a'+", "'a'", "", 3_000)),
        ("5,000 products", around("1*", "1", "", 5_000)),
        ("5,000 indices", around("", "object", "[0]", 5_000)),
        (
            "5,000 optional indices",
            around("", "object", "[?0]", 4_000),
        ),
        ("5,000 fields", around("", "object", ".a", 5_000)),
        ("2,000 calls", around("", "object", ".size()", 2_000)),
        (
            "2,500 calls in calls",
            around("size(", "object", ")", 2_500),
        ),
        ("2,000 choices", around("true?1:", "1", "", 2_000)),
        (
            "2,000 choices to the left",
            around("(", "true", "?true:true)", 1_200),
        ),
        (
            "5,000 nots in parentheses",
            around("!(", "true", ")", 5_000),
        ),
        ("5,000 signs in parentheses", around("-(", "1", ")", 5_000)),
        ("900 has", around("has(object.a[", "0", "].b)", 900)),
        ("500 comprehensions", nested(500)),
        ("1,000 objects", around("Object{spec:", "1", "}", 1_000)),
        (
            "a source of 20 kB",
            value(format!("size({:?})", "x".repeat(20_000))),
        ),
        (
            "1,000 variables of one list",
            grown("object.spec.items", "$", 1_000),
        ),
        ("a variable of itself", value("variables.v0")),
        ("an open string", value(format!("'{}", "x".repeat(16_000)))),
        ("a huge number", value("9".repeat(16_000))),
        ("unknown types that double", unknowns()),
        (
            "a pattern that repeats repetitions",
            pattern("((a{1,100}){1,100}){1,100}".into()),
        ),
        ("a pattern of 3,000 classes", pattern("\\pL".repeat(3_000))),
        (
            "a pattern of 1,000 negated classes",
            pattern("[^\\pL\\pN]".repeat(1_000)),
        ),
        (
            "a pattern without case",
            pattern(format!("(?i){}", "\\pL".repeat(2_000))),
        ),
        (
            "a pattern of 5,000 groups",
            pattern(format!("{}x{}", "(".repeat(5_000), ")".repeat(5_000))),
        ),
    ]
}

/// Sources that are wide, or look deep.
fn wide() -> Vec<(&'static str, Value)> {
    let words = |one: &str, count: usize| vec![one; count].join(",");
    vec![
        (
            "a type that doubles in calls",
            value(format!("[1]{}", ".map(x,{x:x})".repeat(60))),
        ),
        (
            "a type that doubles in variables",
            grown("{1: 1}", "{$: $}", 40),
        ),
        ("16,000 nots", around("!", "true", "", 16_000)),
        ("16,000 signs", around("-", "1", "", 16_000)),
        ("2,600 disjunctions", around("1==2||", "true", "", 2_600)),
        (
            "1,900 comparisons of lists",
            around("[]==[]||", "true", "", 1_900),
        ),
        ("a list of 8,000", value(format!("[{}]", words("1", 8_000)))),
        (
            "a list of 5,000 lists",
            value(format!("[{}]", words("[]", 5_000))),
        ),
        (
            "a list of 4,000 maps",
            value(format!("[{}]", words("{}", 4_000))),
        ),
        (
            "a list of 1,300 pairs of lists",
            value(format!("[{}]", words("[[],[]]", 1_300))),
        ),
        (
            "a map of 4,000",
            value(format!("{{{}}}", words("1:1", 4_000))),
        ),
        (
            "1,200 optionals",
            value(format!("[{}]", words("?object.?b", 1_200))),
        ),
    ]
}

/// Each loop variable's type comes to be a map of the next one's, twice.
fn unknowns() -> Value {
    let mut source = String::new();
    for i in 0..40 {
        source.push_str(&format!("[].map(x{i},"));
    }
    let pairs: Vec<String> = (0..39)
        .map(|i| format!("[x{i},{{x{0}:x{0}}}]==[]", i + 1))
        .collect();
    source.push_str(&pairs.join("||"));
    source.push_str(&")".repeat(40));
    value(source)
}

/// Values that grow.
fn growing() -> Vec<(&'static str, Value)> {
    vec![
        ("a string doubled 30 times", grown("'x'", "$ + $", 30)),
        ("bytes doubled 30 times", grown("b'x'", "$ + $", 30)),
        ("a list doubled 30 times", grown("[1]", "$ + $", 30)),
        (
            "a list of itself twice, 30 times",
            grown("[1]", "[$, $]", 30),
        ),
        (
            "a map of itself twice, 30 times",
            grown("{'a': 1}", "{'a': $, 'b': $}", 30),
        ),
        (
            "a replacement, 30 times",
            grown("'x'", "$.replace('x', 'xx')", 30),
        ),
        (
            "a replacement of nothing",
            grown("'xxxx'", "$.replace('', $)", 30),
        ),
        (
            "a format, 30 times",
            grown("'x'", "'%s%s'.format([$, $])", 30),
        ),
        (
            "a list joined, 30 times",
            grown("'xx'", "[$, $].join($)", 30),
        ),
        (
            "hexadecimal, 30 times",
            grown("'x'", "'%x'.format([$])", 30),
        ),
        (
            "a split joined by itself",
            grown("'xx'", "$.split('').join($)", 30),
        ),
        ("quotes, 30 times", grown("'\"'", "strings.quote($)", 30)),
        (
            "a split, doubled",
            over_text(9, "$.split('').map(c, $.split(''))"),
        ),
        (
            "a range without end",
            value("lists.range(9223372036854775807)"),
        ),
        ("a range of a million", value("lists.range(10000000)")),
        (
            "lists in lists",
            value("object.spec.items.map(a, object.spec.items)"),
        ),
        (
            "sums of lists",
            value("object.spec.items.map(a, object.spec.items).sum()"),
        ),
        (
            "maps in maps",
            value("object.spec.items.map(a, object.spec.items.transformMap(i, b, b))"),
        ),
    ]
}

/// Expressions that run for long.
fn slow() -> Vec<(&'static str, Value)> {
    let loops = |count: usize, body: &str| {
        let open: String = (0..count)
            .map(|i| format!("object.spec.items.all(x{i}, "))
            .collect();
        value(format!("{open}{body}{}", ")".repeat(count)))
    };
    let each = |doublings, body: &str| {
        over_text(
            doublings,
            &format!("object.spec.items.all(i, object.spec.items.all(j, {body} || true))"),
        )
    };
    vec![
        ("two loops over 10,000", loops(2, "x0 + x1 >= 0")),
        ("five loops over 10,000", loops(5, "true")),
        ("60 loops over 10,000", loops(60, "true")),
        ("a loop that swallows errors", loops(3, "x0 / 0 == 1")),
        (
            "distinct of lists",
            value("object.spec.items.map(a, [a]).distinct()"),
        ),
        (
            "sets of 10,000",
            value("object.spec.items.all(a, sets.contains(object.spec.items, object.spec.items))"),
        ),
        (
            "10,000 sorts",
            value("object.spec.items.all(a, object.spec.items.sort() != [])"),
        ),
        (
            "10,000 comparisons of lists",
            value("object.spec.items.all(a, object.spec.items == object.spec.items.map(b, b))"),
        ),
        ("quantities", each(10, "isQuantity($)")),
        ("versions", each(10, "isSemver($)")),
        ("URLs", each(10, "isURL($)")),
        ("addresses", each(10, "isIP($)")),
        ("networks", each(10, "isCIDR($)")),
        ("times", each(10, "timestamp($) == timestamp($)")),
        ("spans", each(10, "duration($) == duration($)")),
        ("numbers", each(10, "int($) == 1")),
        ("real numbers", each(10, "double($) == 1.0")),
        (
            "names of resources",
            each(10, "resourceName($).isExtended()"),
        ),
        (
            "named formats",
            each(10, "!format.dns1123Subdomain().validate($).hasValue()"),
        ),
        (
            "searches",
            each(10, "$.indexOf('xxxxxxxxxxxxxxxxxxxxxxxxxy') == 1"),
        ),
        (
            "searches from the end",
            each(10, "$.lastIndexOf('yxxxxxxxxxxxxxxxxxxxxxxxx') == 1"),
        ),
        ("long texts compared", each(10, "$ + 'a' == $ + 'b'")),
        ("long keys", each(10, "{$ + 'a': 1}[$ + 'b'] == 1")),
        ("long keys looked for", each(10, "$ in {$: 1}")),
        ("long keys written", each(10, "{$: 1, $: 1} == {}")),
        ("one pattern, long text", each(10, "$.matches('(x+x+)+y')")),
        (
            "a pattern for each element",
            value(
                "object.spec.items.all(i, object.spec.text.matches('(x{1,9}){1,9}y' + string(i)) || true)",
            ),
        ),
        (
            "a pattern of a megabyte",
            over_text(10, "object.spec.text.matches($) ? 1 : 2"),
        ),
        (
            "a pattern of a megabyte of classes",
            over_text(
                8,
                "object.spec.text.matches($.replace('x', '\\\\pL')) ? 1 : 2",
            ),
        ),
        ("all that a pattern finds", each(8, "$.findAll('x?') == []")),
    ]
}

/// What fails by itself, or does little.
fn odd() -> Vec<(&'static str, Value)> {
    let pattern = |source: String| value(format!("object.spec.text.matches({source:?}) ? 1 : 2"));
    vec![
        (
            "a pattern of stars in stars",
            pattern("((((((x*)*)*)*)*)*)*y".into()),
        ),
        (
            "a pattern of alternatives",
            pattern(vec!["x"; 8_000].join("|")),
        ),
        (
            "a pattern of 100 kB, nested",
            over_text(
                6,
                "object.spec.text.matches($.replace('x', '(') + $.replace('x', ')')) ? 1 : 2",
            ),
        ),
    ]
}

/// Patches that do harm.
fn patching() -> Vec<(&'static str, Value)> {
    let same = |expression: &str, count: usize| spec(&[], &vec![expression; count]);
    let text = |doublings: usize| {
        let mut all = vec![(
            "v0".to_owned(),
            "object.spec.text.substring(0, 1000)".to_owned(),
        )];
        for i in 0..doublings {
            all.push((
                format!("v{}", i + 1),
                format!("variables.v{i} + variables.v{i}"),
            ));
        }
        all
    };
    let copies =
        "object.spec.items.map(i, JSONPatch{op: 'copy', from: '/spec', path: '/c' + string(i)})";
    let appends = "[JSONPatch{op: 'add', path: '/spec/text' + string(size(object.spec)), value: variables.v10}]";
    let moves = "object.spec.items.map(i, JSONPatch{op: 'move', from: '/spec/items/0', path: '/spec/items/-'})";
    let deeper = format!(
        "lists.range(100).map(i, JSONPatch{{op: 'add', path: '/spec/' + lists.range(i * 60).map(j, 'a').join('/') + (i == 0 ? 'a' : '/a'), value: {}1{}}})",
        "{'a':".repeat(60),
        "}".repeat(60),
    );
    let tests =
        "object.spec.items.map(i, JSONPatch{op: 'test', path: '/spec/text', value: variables.v0})";
    vec![
        (
            "1,000 mutations that grow",
            spec(&text(10), &vec![appends; 1_000]),
        ),
        (
            "1,000 mutations that loop",
            same(
                "object.spec.items.all(a, object.spec.items.all(b, true)) ? [JSONPatch{op: 'test', path: '/a'}] : []",
                1_000,
            ),
        ),
        ("copies of copies", same(copies, 10)),
        ("10,000 moves, 100 times", same(moves, 100)),
        ("an object without a floor", same(&deeper, 50)),
        ("10,000 tests, 100 times", spec(&text(0), &vec![tests; 100])),
    ]
}
