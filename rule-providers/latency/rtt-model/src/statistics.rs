//! Robust statistics, which a few wrong values do not move far.

/// Returns the median, the mean of the middle two for an even number of values; 0 without values.
pub(crate) fn median(values: &mut [f32]) -> f32 {
    let half = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    let even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(half, f32::total_cmp);
    let upper = *upper;
    match below.iter().copied().max_by(f32::total_cmp) {
        Some(lower) if even => lower + (upper - lower) / 2.0,
        _ => upper,
    }
}

/// Returns the standard deviation of normal residuals with these absolute values, by their median.
pub(crate) fn spread(sizes: &mut [f32]) -> f32 {
    1.4826 * median(sizes)
}

/// Returns the standard deviation of normal residuals with these absolute values, by their 80 %
/// quantile; 0 without values.
pub(crate) fn four_of_five(sizes: &mut [f32]) -> f32 {
    let at = sizes.len() * 4 / 5;
    if sizes.is_empty() {
        return 0.0;
    }
    *sizes.select_nth_unstable_by(at, f32::total_cmp).1 / 1.2816
}

/// Returns the quantile `part` of (value, weight) pairs; `None` without values.
pub(crate) fn weighted_quantile(values: &mut [(f32, f32)], part: f32) -> Option<f32> {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let all: f32 = values.iter().map(|v| v.1).sum();
    let mut sum = 0.0;
    let reached = values.iter().find(|v| {
        sum += v.1;
        sum >= part * all
    });
    reached.or(values.last()).map(|v| v.0)
}
