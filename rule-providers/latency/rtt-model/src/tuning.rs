//! The numbers that the model's accuracy depends on most. `tests/bench/latency` measures the effect
//! of a change.

/// The model's tuning. Times in it are in units of the fit's scale, errors are of the time's
/// natural logarithm.
pub(crate) struct Tuning {
    /// The residual beyond which a pair pulls no harder (Huber's loss), in logarithm: false reports
    /// and detours then move places little.
    pub max_pull_residual: f32,
    /// The value of `max_pull_residual` if samples are noisy, so that the usual corrections do
    /// harm.
    pub max_pull_residual_if_noisy: f32,
    /// The exponent of a pair's time in its weight: near pairs are measured more often than others.
    pub time_weight_power: f32,
    /// The largest weight of a pair by its time; a pair with the time of the scale has weight 1.
    pub max_pair_weight: f32,
    /// The height of a node without samples, in units of the scale; it stands for the access line.
    pub first_height: f32,
    /// The standard deviation of random first places, on each axis, in units of the scale.
    pub first_spread: f32,
    /// The force that draws a point towards the origin, for each unit of distance: distances
    /// without samples stay small.
    pub ridge: f32,
    /// The force of a height towards `first_height`, for each unit of its logarithm.
    pub height_ridge: f32,
    /// The sizes of the first and last step in the two halves of a fit from scratch: far pairs sort
    /// the places, then near pairs do.
    pub cold_steps: [[f32; 2]; 2],
    /// The sizes of the first and last step of a fit that continues: larger ones undo the order
    /// that near pairs have found.
    pub warm_steps: [f32; 2],
    /// The part of measured nodes that may be new; with more, a fit starts from scratch.
    pub max_new_nodes: f32,

    /// The number of nearest nodes whose pairs correct a node's pairs.
    pub neighbours: usize,
    /// The rank of the neighbour whose distance is a node's own unit of distance.
    pub neighbour_scale_rank: usize,
    /// The distances, in two nodes' own units, over which the wide and the narrow kernel fall by a
    /// factor of e.
    pub kernel_widths: [f32; 2],
    /// The weight of "no correction", in measured pairs at distance 0.
    pub correction_prior: f32,
    /// The value of `correction_prior` if samples are noisy: only many residuals together count.
    pub noisy_correction_prior: f32,

    /// The number of parts of the measured pairs; a second fit leaves one of them out.
    pub held_out_parts: u64,
    /// The number of pairs below which `held_out_folds` parts are held out in turn.
    pub held_out_few_pairs: usize,
    /// The number of parts that are held out in turn if pairs are few.
    pub held_out_folds: usize,
    /// The largest number of ranges of predicted times, each with its own error bar.
    pub bins: usize,
    /// The least number of held-out pairs in a range; with fewer in all there is no calibration.
    pub min_pairs_per_bin: usize,
    /// The weight of the error of all pairs in the error of a range, in pairs.
    pub bin_prior: f32,

    /// The weight of the typical time of a zone's racks in a rack's time, in samples.
    pub rack_prior: f32,
    /// The least number of samples of a class with a spread of its own.
    pub min_samples_of_spread: usize,
    /// The number of times that classes and offsets are fitted in turn.
    pub label_sweeps: usize,
    /// The least mean error of a node's labels with which another zone is looked for, and the ratio
    /// of the other zone's error to it below which the labels are wrong.
    pub contradiction: (f32, f32),
    /// The largest number of searches for nodes with wrong labels, each with the locations that the
    /// last search found.
    pub relocations: usize,

    /// The part of a node's targets that are landmarks, the same for all nodes, if labels do not
    /// choose its targets.
    pub landmarks: f32,
    /// The weight of the mean difference between two nodes' times to common targets, in logarithm,
    /// in the choice of near targets.
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
