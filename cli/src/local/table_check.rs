//! Finds faults in the tables of round-trip times and bandwidth in ConfigMaps.

use k8s_openapi::api::core::v1::ConfigMap;
use tautline_api::manifest::{FieldPath, Finding, Item};
use tautline_latency::{BANDWIDTH_TABLE_LABEL, Bandwidth, PairTable, RoundTrip, TABLE_LABEL};

use super::builtin::is_labelled;

/// The faults of each table, each with the ConfigMap's index in `items`.
pub(crate) fn table_faults(items: &[Item]) -> impl Iterator<Item = (usize, Finding)> {
    let maps = items
        .iter()
        .enumerate()
        .filter_map(|(at, item)| match item {
            Item::ConfigMap(map) => Some((at, &**map)),
            _ => None,
        });
    maps.flat_map(|(at, map)| faults(map).map(move |fault| (at, fault)))
}

fn faults(map: &ConfigMap) -> impl Iterator<Item = Finding> {
    let is_table = |label| is_labelled(map, label);
    let (round_trips, bandwidths) = (is_table(TABLE_LABEL), is_table(BANDWIDTH_TABLE_LABEL));
    let tables = map.data.iter().flatten();
    tables.filter_map(move |(key, text)| {
        let of_round_trips = || PairTable::<RoundTrip>::default().add(text).err();
        let of_bandwidths = || PairTable::<Bandwidth>::default().add(text).err();
        let in_round_trips = round_trips.then(of_round_trips).flatten();
        let error = in_round_trips.or_else(|| bandwidths.then(of_bandwidths).flatten())?;
        let (namespace, name) = (&map.metadata.namespace, &map.metadata.name);
        let namespace = namespace.as_deref().unwrap_or("default");
        Some(Finding {
            object: format!(
                "ConfigMap {namespace}/{}",
                name.as_deref().unwrap_or_default()
            ),
            field: FieldPath::from_keys(["data", key]),
            message: format!("{error}; the rest of the table is left out"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_api::manifest;

    fn found(label: &str, rows: &str) -> Vec<String> {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\n\
             metadata: {{name: t, namespace: shop, labels: {{{label}: enabled}}}}\n\
             data:\n  t.csv: |\n{rows}"
        );
        let items = manifest::parse(&text).unwrap();
        let found = table_faults(&items);
        found.map(|(at, fault)| format!("{at}: {fault}")).collect()
    }

    #[test]
    fn malformed_rows_are_faults() {
        let rows = "    a,b,5ms\n    a,c,80\n    b,c,1ms\n";
        let found_faults = found(TABLE_LABEL, rows);
        assert_eq!(found_faults.len(), 1, "{found_faults:?}");
        let start = "0: ConfigMap shop/t: data[\"t.csv\"]: line 2: ";
        assert!(found_faults[0].starts_with(start), "{found_faults:?}");
        assert_eq!(found(BANDWIDTH_TABLE_LABEL, rows).len(), 1);
        assert_eq!(found(TABLE_LABEL, "    a,b,5ms\n"), [""; 0]);
        assert_eq!(found("example.com/other", rows), [""; 0]);
    }
}
