//! All numbers that the model's accuracy depends on. `tests/bench/latency` says what a change costs:
//! its ablations are the reason for what is not here.

/// The model's tuning. Times in it are in units of the fit's scale, errors are of the time's
/// natural logarithm.
pub(crate) struct Tuning {
    /// The residual beyond which a pair pulls no harder (Huber's loss), in logarithm: false reports
    /// and detours then move places little.
    pub max_pull_residual: f32,
    /// The same where corrections do harm, because samples are noisy.
    pub max_pull_residual_if_noisy: f32,
    /// A pair counts as its time to this power: near pairs are measured more often than others.
    pub time_weight_power: f32,
    /// The weight of the farthest pair, in pairs at the scale.
    pub max_pair_weight: f32,
    /// The height of a node without samples: its access line, in units of the scale.
    pub first_height: f32,
    /// The standard deviation of random first places, on each axis, in units of the scale.
    pub first_spread: f32,
    /// The force towards the middle on a point, for each unit of distance: distances without
    /// samples stay small.
    pub ridge: f32,
    /// The force of a height towards `first_height`, for each unit of its logarithm.
    pub height_ridge: f32,
    /// The first and last step of the two halves of a fit from nothing: far pairs sort the places,
    /// then near pairs do.
    pub cold_steps: [[f32; 2]; 2],
    /// The first and last step of a fit that goes on: larger ones undo what near pairs have found.
    pub warm_steps: [f32; 2],
    /// The part of measured nodes that are new from which on a fit starts from nothing.
    pub max_new_nodes: f32,

    /// The number of nearest nodes whose pairs correct a node's pairs.
    pub neighbours: usize,
    /// The rank of the neighbour whose distance is a node's own unit.
    pub neighbour_scale_rank: usize,
    /// The distances in a node's own units over which the wide and the narrow kernel fall by e.
    pub kernel_widths: [f32; 2],
    /// The weight of "no correction", in measured pairs at distance 0.
    pub correction_prior: f32,
    /// The same where samples are noisy: only many residuals together count.
    pub noisy_correction_prior: f32,
    /// The ratio of errors with the usual corrections to those of noisy samples, for pairs that
    /// were held out, from which on samples are noisy.
    pub noisy_ratio: f32,

    /// One measured pair in so many is held out of a second fit.
    pub held_out_parts: u64,
    /// With fewer pairs than this, `held_out_folds` parts are held out in turn.
    pub held_out_few_pairs: usize,
    /// The number of parts that are held out in turn where pairs are few.
    pub held_out_folds: usize,
    /// The number of ranges of predicted times, each with its own mix and error bar.
    pub bins: usize,
    /// The least number of pairs that were held out in a range.
    pub min_pairs_per_bin: usize,
    /// The weight of all pairs' errors in those of a range, in pairs.
    pub bin_prior: f32,

    /// The weight of its zone's racks in a rack's time, in samples.
    pub rack_prior: f32,
    /// The number of samples from which on a class has a spread of its own.
    pub min_samples_of_spread: usize,
    /// The number of fits of classes and offsets in turn.
    pub label_sweeps: usize,
    /// The mean error of a node's labels from which on another zone is looked for, and the ratio to
    /// it below which the error of that zone tells that the labels are wrong.
    pub contradiction: (f32, f32),
    /// How often such nodes are looked for, each time with labels that fit the last ones.
    pub relocations: usize,

    /// The part of a node's targets that are the same for all, where it has no zone.
    pub landmarks: f32,
    /// The weight of the difference of two nodes' times to common targets in the choice of near
    /// targets.
    pub target_unlikeness: f32,
}

pub(crate) const TUNING: Tuning = Tuning {
    max_pull_residual: 0.1,
    max_pull_residual_if_noisy: 0.5,
    time_weight_power: 0.15,
    max_pair_weight: 4.0,
    first_height: 0.02,
    first_spread: 0.3,
    ridge: 0.01,
    height_ridge: 1e-4,
    cold_steps: [[0.3, 0.003], [0.02, 0.0005]],
    warm_steps: [0.005, 0.0005],
    max_new_nodes: 0.2,

    neighbours: 32,
    neighbour_scale_rank: 12,
    kernel_widths: [0.35, 0.15],
    correction_prior: 0.03,
    noisy_correction_prior: 1.0,
    noisy_ratio: 1.0,

    held_out_parts: 10,
    held_out_few_pairs: 4_000,
    held_out_folds: 6,
    bins: 8,
    min_pairs_per_bin: 25,
    bin_prior: 8.0,

    rack_prior: 20.0,
    min_samples_of_spread: 16,
    label_sweeps: 5,
    contradiction: (0.12, 0.7),
    relocations: 3,

    landmarks: 0.125,
    target_unlikeness: 16.0,
};
