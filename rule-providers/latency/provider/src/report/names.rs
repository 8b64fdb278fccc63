const MAX_SUGGESTIONS: usize = 5;
const MAX_DISTANCE: usize = 3;

/// Returns the names most similar to `name`, nearest first.
pub(super) fn near<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted: Vec<char> = name.chars().take(253).collect();
    let mut found: Vec<(usize, &str)> = all
        .filter_map(|other| {
            if !name.is_empty() && other.contains(name) {
                return Some((MAX_DISTANCE + 1, other));
            }
            Some((distance(&wanted, other)?, other))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    let names = found.into_iter().map(|(_, name)| name.to_owned());
    names.take(MAX_SUGGESTIONS).collect()
}

/// Formats similar names as `; did you mean a1 or a2?`; the text is empty without names.
pub(super) fn near_text(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

/// Returns the Levenshtein distance, or `None` above [`MAX_DISTANCE`].
fn distance(wanted: &[char], other: &str) -> Option<usize> {
    let mut row: Vec<usize> = (0..=wanted.len()).collect();
    for (i, c) in other.chars().enumerate() {
        let (mut left_above, mut least) = (i, i + 1);
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, w) in wanted.iter().enumerate() {
            let above = row[j + 1];
            let changed = left_above + usize::from(*w != c);
            row[j + 1] = changed.min(above + 1).min(row[j] + 1);
            left_above = above;
            least = least.min(row[j + 1]);
        }
        if least > MAX_DISTANCE {
            return None;
        }
    }
    row.last().copied().filter(|d| *d <= MAX_DISTANCE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_nearest_come_first() {
        let all = ["edge-1", "edge-11", "edge-2", "north-edge-12-b", "south"];
        let of = |name| near(name, all.into_iter());
        assert_eq!(of("egde-1"), ["edge-1", "edge-11", "edge-2"]);
        assert_eq!(
            of("edge-12"),
            ["edge-1", "edge-11", "edge-2", "north-edge-12-b"]
        );
        assert!(of("quite-another").is_empty());
        assert_eq!(near_text(&of("sout")), "; did you mean south?");
        assert_eq!(near_text(&[]), "");
    }

    proptest! {
        #[test]
        fn any_name_has_an_answer(name in ".{0,300}", other in ".{0,300}") {
            let found = near(&name, [other.as_str()].into_iter());
            prop_assert_eq!(near(&other, [other.as_str()].into_iter()), vec![other.clone()]);
            prop_assert!(found.len() <= 1);
        }

        #[test]
        fn it_is_the_same_both_ways(a in "[ab]{0,6}", b in "[ab]{0,6}") {
            let chars = |t: &str| t.chars().collect::<Vec<_>>();
            prop_assert_eq!(distance(&chars(&a), &b), distance(&chars(&b), &a));
        }
    }
}
