//! Statistics that a few wrong values do not move far.

/// Median absolute deviation to standard deviation, for normal errors.
const MAD: f32 = 1.4826;
/// Four of five normal errors lie within so many standard deviations.
pub(super) const FOUR_OF_FIVE: f32 = 1.2816;

/// 0 for nothing; the mean of the two in the middle of an even number.
pub(super) fn median(values: &mut [f32]) -> f32 {
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

/// The standard deviation, by the median of the residuals' sizes.
pub(super) fn spread(residuals: &mut [f32]) -> f32 {
    MAD * median(residuals)
}

/// The standard deviation, by the range of four in five residuals.
pub(super) fn four_of_five(residuals: &mut [f32]) -> f32 {
    let at = residuals.len() * 4 / 5;
    if residuals.is_empty() {
        return 0.0;
    }
    *residuals.select_nth_unstable_by(at, f32::total_cmp).1 / FOUR_OF_FIVE
}

/// The median of few values, in which `usual` counts as one and a half.
pub(super) fn median_with_prior(values: &mut Vec<f32>, usual: f32) -> f32 {
    let count = values.len();
    values.extend_from_within(..count);
    values.extend([usual; 3]);
    median(values)
}

#[derive(Clone, Copy)]
pub(super) struct Weighed {
    pub micros: f32,
    pub precision: f32,
}

/// The median by the inverse of the standard deviations; 0 for nothing.
pub(super) fn weighted_median(values: &mut [Weighed]) -> f32 {
    values.sort_unstable_by(|a, b| a.micros.total_cmp(&b.micros));
    let half = values.iter().map(|w| w.precision.sqrt()).sum::<f32>() / 2.0;
    let mut below = 0.0;
    let middle = values.iter().find(|w| {
        below += w.precision.sqrt();
        below >= half
    });
    middle.map_or(0.0, |w| w.micros)
}
