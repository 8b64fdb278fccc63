/// The load of the last column, in percent of all cards.
pub const MAX_LOAD_PERCENT: usize = 130;

/// A figure for each percent of arrived load, 0 to 130; `None` where no pod arrived.
pub type Curve = Vec<Option<f64>>;

/// Computes a curve. Column c is the mean over the arrivals whose load rounds to c percent; without
/// such arrivals, over the arrivals of the adjacent columns. `arrived` is in thousandths of cards.
pub fn curve(cards: i64, arrived: &[i64], values: &[f64]) -> Curve {
    let mut sums = vec![(0.0, 0_u32); MAX_LOAD_PERCENT + 2];
    for (arrived, value) in arrived.iter().zip(values) {
        let load = (*arrived as f64 / cards as f64 / 10.0).round_ties_even();
        if let Some((sum, count)) = sums.get_mut(load as usize) {
            *sum += value;
            *count += 1;
        }
    }
    let mean = |columns: &[(f64, u32)]| {
        let (sum, count) = columns
            .iter()
            .fold((0.0, 0), |(s, n), (sum, count)| (s + sum, n + count));
        (count > 0).then(|| round2(sum / f64::from(count)))
    };
    (0..=MAX_LOAD_PERCENT)
        .map(|c| mean(&sums[c..=c]).or_else(|| mean(&sums[c.saturating_sub(1)..=c + 1])))
        .collect()
}

/// The used GPU in percent of all cards, rounded to two decimals.
pub fn allocation(cards: i64, used_milli: i64) -> f64 {
    (used_milli as f64 / cards as f64 / 10.0 * 100.0).round_ties_even() / 100.0
}

/// Rounds to two decimals, and halves to the even neighbour.
pub fn round2(value: f64) -> f64 {
    // Formatting rounds the exact value; multiplying first would not.
    format!("{value:.2}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_means_and_gaps_take_their_neighbours() {
        let out = curve(1, &[0, 10, 11, 30, 2000], &[0.0, 1.0, 2.0, 5.0, 9.0]);
        assert_eq!(out[..4], [Some(0.0), Some(1.5), Some(2.67), Some(5.0)]);
        assert_eq!(out[4..6], [Some(5.0), None]);
        assert_eq!(out.len(), 131);
    }

    #[test]
    fn halves_go_to_the_even_neighbour() {
        assert_eq!(allocation(1, 1), 0.1);
        assert_eq!(round2(0.125), 0.12);
        assert_eq!(round2(2.675), 2.67);
        // 0.5 % of load is column 0, 1.5 % column 2.
        let out = curve(1, &[5, 15], &[1.0, 2.0]);
        assert_eq!((out[0], out[2]), (Some(1.0), Some(2.0)));
    }
}
