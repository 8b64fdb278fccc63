//! The numbers that the model's accuracy depends on most. Times are in units of the fit's scale,
//! errors are of the time's natural logarithm. `tests/bench/latency` measures the effect of a
//! change.

/// The residual beyond which a pair pulls no harder (Huber's loss): false reports and detours then
/// move places little. The second value counts if samples are noisy.
pub const MAX_PULL_RESIDUALS: [f32; 2] = [0.1, 0.5];
/// The exponent of a pair's time in its weight: near pairs are measured more often than others.
pub const TIME_WEIGHT_POWER: f32 = 0.15;
/// The largest weight of a pair by its time; a pair with the time of the scale has weight 1.
pub const MAX_PAIR_WEIGHT: f32 = 4.0;
/// The height of a node without samples; it stands for the access line.
pub const FIRST_HEIGHT: f32 = 0.02;
/// The standard deviation of random first places, on each axis.
pub const FIRST_SPREAD: f32 = 0.3;
/// The force that draws a point towards the origin, for each unit of distance: distances without
/// samples stay small.
pub const RIDGE: f32 = 0.01;
/// The force of a height towards [`FIRST_HEIGHT`], for each unit of its logarithm.
pub const HEIGHT_RIDGE: f32 = 1e-4;
/// The sizes of the first and last step in the two halves of a fit from scratch: far pairs sort the
/// places, then near pairs do.
pub const COLD_STEPS: [[f32; 2]; 2] = [[0.3, 0.003], [0.02, 0.0005]];
/// The sizes of the first and last step of a fit that continues: larger ones undo the order that
/// near pairs have found.
pub const WARM_STEPS: [f32; 2] = [0.005, 0.0005];
/// The part of measured nodes that may be new; with more, a fit starts from scratch.
pub const MAX_NEW_NODES: f32 = 0.2;

/// The number of nearest nodes whose pairs correct a node's pairs.
pub const NEIGHBOURS: usize = 32;
/// The rank of the neighbour whose distance is a node's own unit of distance.
pub const NEIGHBOUR_SCALE_RANK: usize = 12;
/// The distances, in two nodes' own units, over which the wide and the narrow kernel fall by a
/// factor of e.
pub const KERNEL_WIDTHS: [f32; 2] = [0.35, 0.15];
/// The weight of "no correction", in measured pairs at distance 0. The second value counts if
/// samples are noisy: only many residuals together then correct a pair.
pub const CORRECTION_PRIORS: [f32; 2] = [0.03, 1.0];
/// The upper bound of a residual and of an error that is compared: the largest decide nothing.
pub const MAX_ERROR: f32 = 1.0;

/// The number of parts of the measured pairs; a second fit leaves one of them out.
pub const HELD_OUT_PARTS: u64 = 10;
/// The number of pairs below which [`HELD_OUT_FOLDS`] parts are held out in turn.
pub const HELD_OUT_FEW_PAIRS: usize = 4_000;
/// The number of parts that are held out in turn if pairs are few.
pub const HELD_OUT_FOLDS: usize = 6;
/// The ratio of errors on held-out pairs below which something else replaces what is usual.
pub const MIN_GAIN_RATIO: f32 = 0.95;
/// The largest number of ranges of predicted times, each with its own error bar.
pub const BINS: usize = 8;
/// The least number of held-out pairs in a range; fewer in all say nothing.
pub const MIN_PAIRS: usize = 25;
/// The weight of the error of all pairs in the error of a range, in pairs.
pub const BIN_PRIOR: f32 = 8.0;

/// The weight of the typical time of a zone's racks in a rack's time, in samples.
pub const RACK_PRIOR: f32 = 20.0;
/// The least number of samples of a class with a spread of its own.
pub const MIN_SAMPLES_OF_SPREAD: usize = 16;
/// The number of times that classes and offsets are fitted in turn.
pub const LABEL_SWEEPS: usize = 5;
/// The least mean error of a node's labels with which another zone is looked for.
pub const CONTRADICTION: f32 = 0.12;
/// The ratio of another zone's error to that of a node's labels below which the labels are wrong.
pub const CONTRADICTION_RATIO: f32 = 0.7;
/// The largest number of searches for nodes with wrong labels, each with the locations that the
/// last search found.
pub const RELOCATIONS: usize = 3;

/// The part of a node's targets that are landmarks, the same for all nodes, if labels do not choose
/// its targets.
pub const LANDMARKS: f32 = 0.125;
/// The weight of the mean difference between two nodes' times to common targets in the choice of
/// near targets.
pub const TARGET_UNLIKENESS: f32 = 16.0;
