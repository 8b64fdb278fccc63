use super::*;
use crate::tables::table::{RoundTrip, Table};

impl<U: Unit> Tables<U> {
    fn shared_len(&self) -> usize {
        self.shared.len()
    }

    fn own_len(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).map_or(0, |t| t.len())
    }
}

fn maps(trusted: &[&str]) -> ConfigMapTables<RoundTrip> {
    ConfigMapTables::new(trusted.iter().copied().collect())
}

fn put(
    maps: &mut ConfigMapTables<RoundTrip>,
    namespace: &str,
    name: &str,
    csv: &str,
) -> Vec<String> {
    let errors = maps.put(namespace, name, [("t.csv", csv)]);
    errors.iter().map(ToString::to_string).collect()
}

fn many(rows: usize) -> String {
    (0..rows).map(|i| format!("n{i},m{i},1ms\n")).collect()
}

/// How many rows the workloads of a namespace see.
fn seen(maps: &mut ConfigMapTables<RoundTrip>, namespace: &str) -> (usize, usize) {
    let tables = maps.tables();
    (tables.own_len(namespace), tables.shared_len())
}

#[test]
fn trusted_tables_are_shared_and_others_stay_in_their_namespace() {
    let mut maps = maps(&["system"]);
    assert!(put(&mut maps, "system", "a", "a,b,1ms").is_empty());
    assert!(put(&mut maps, "shop", "a", "a,b,2ms\nc,d,2ms").is_empty());
    assert!(put(&mut maps, "shop", "b", "e,f,2ms").is_empty());
    assert_eq!(seen(&mut maps, "shop"), (3, 1));
    assert_eq!(seen(&mut maps, "bank"), (0, 1));
    maps.remove("shop", "a");
    assert_eq!(seen(&mut maps, "shop"), (1, 1));
    assert!(put(&mut maps, "shop", "b", "").is_empty());
    maps.remove("system", "a");
    maps.remove("system", "never there");
    assert_eq!(seen(&mut maps, "shop"), (0, 0));
    assert_eq!(maps.tables().left_out, 0);
}

#[test]
fn malformed_table_is_named_and_cut_off_there() {
    let mut maps = maps(&[]);
    let errors = put(&mut maps, "shop", "bad", "a,b,1ms\nbroken\nc,d,1ms");
    assert_eq!(
        errors,
        [
            "ConfigMap shop/bad, t.csv: line 2: 1 fields instead of 3; write it as FROM,TO,RTT with an RTT such as 12ms; the rest of it is left out"
        ]
    );
    assert_eq!(seen(&mut maps, "shop"), (1, 0));
    let long = format!("a,{},1ms", "x".repeat(700));
    let errors = put(&mut maps, "shop", "long", &long);
    assert!(errors[0].contains("longer than 600 bytes"), "{errors:?}");
    assert!(errors[0].len() < 300, "the log does not repeat the line");
}

#[test]
fn rows_above_the_bound_of_a_namespace_are_left_out_and_counted() {
    let mut maps = maps(&["system"]);
    assert!(put(&mut maps, "shop", "a", &many(MAX_ROWS - 1)).is_empty());
    let errors = put(&mut maps, "shop", "b", "x,y,1ms\ny,z,1ms\nz,x,1ms");
    assert!(errors[0].starts_with("ConfigMap shop/b: 2 rows are left out"));
    assert_eq!(seen(&mut maps, "shop"), (MAX_ROWS, 0));
    assert_eq!(maps.tables().left_out, 2);
    // Another namespace has its own room, and a trusted one is not bounded.
    assert!(put(&mut maps, "bank", "a", "x,y,1ms").is_empty());
    assert!(put(&mut maps, "system", "a", &many(MAX_ROWS + 1)).is_empty());
    assert_eq!(seen(&mut maps, "bank"), (1, MAX_ROWS + 1));
    // Once there is room, the ConfigMap counts when it comes again.
    maps.remove("shop", "a");
    assert!(put(&mut maps, "shop", "b", "x,y,1ms\ny,z,1ms\nz,x,1ms").is_empty());
    assert_eq!(maps.tables().left_out, 0);
}

#[test]
fn the_largest_namespace_is_left_out_when_all_are_too_large() {
    let mut maps = maps(&[]);
    assert!(put(&mut maps, "small", "a", "x,y,1ms").is_empty());
    let full = many(MAX_ROWS);
    let mut errors = Vec::new();
    for i in 0..MAX_ROWS_IN_ALL / MAX_ROWS {
        errors.extend(put(&mut maps, &format!("big-{i}"), "a", &full));
    }
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("all 10000 rows of its tables are left out"));
    assert_eq!(seen(&mut maps, "small"), (1, 0));
    assert_eq!(maps.tables().left_out, MAX_ROWS);
    assert!(maps.rows <= MAX_ROWS_IN_ALL);
    let bounded: usize = maps.namespaces.values().map(|n| n.rows).sum();
    assert_eq!(bounded, maps.rows);
}

#[test]
fn a_table_given_as_such_counts_for_all() {
    let mut table = Table::default();
    table.add("a,b,1ms").unwrap();
    assert_eq!(Tables::from(table).shared_len(), 1);
}
