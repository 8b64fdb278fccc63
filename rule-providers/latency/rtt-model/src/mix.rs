//! How coordinates and labels are combined: as the errors that they state say, unless labels alone
//! clearly predict pairs that were held out better.

use crate::{
    held_out::{HeldOut, weighted_quantile},
    stated::Stated,
};

/// The upper bound of an error in the choice.
const MOST_MISSED: f32 = 4.0;
/// Labels alone are chosen if they err less by so many standard errors, and by this part.
const CLEARLY: f32 = 3.0;
/// Fewer in a range, if they are chosen over all ranges.
const HINTED: f32 = 1.0;
const PART: f32 = 0.05;
/// Coordinates count if their stated error is smaller by this factor.
const SURER: f32 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mix {
    /// Labels, or both weighted by the inverse squares of stated errors where that of coordinates
    /// is far smaller.
    Stated,
    Coordinates,
    Labels,
}

impl Mix {
    /// Without labels, those that make all nodes alike are not used at first.
    pub fn usual(labelled: bool) -> Self {
        match labelled {
            true => Self::Stated,
            false => Self::Coordinates,
        }
    }

    /// The coordinates' share; `stated` are the errors of coordinates and labels.
    pub fn share(self, stated: [f32; 2]) -> f32 {
        let [coords, labels] = stated;
        match self {
            Self::Stated if SURER * coords < labels => {
                labels.powi(2) / (labels.powi(2) + coords.powi(2))
            }
            Self::Stated => 0.0,
            Self::Coordinates => 1.0,
            Self::Labels => 0.0,
        }
    }

    /// The unit of bars: the stated error.
    pub fn unit(self, stated: [f32; 2]) -> f32 {
        let [coords, labels] = stated;
        match self {
            Self::Stated if SURER * coords < labels => coords,
            Self::Stated | Self::Labels => labels,
            Self::Coordinates => 1.0,
        }
    }
}

/// A pair that was held out, as one fit sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub measured: f32,
    pub noise: f32,
    /// What bins are by.
    pub key: f32,
    pub weight: f32,
    /// Measured over predicted, of coordinates and labels.
    errors: [f32; 2],
    stated: [f32; 2],
}

impl Case {
    /// `shrink` is the number of the corrections in use.
    pub fn plain(held: &HeldOut, shrink: usize) -> Self {
        Self {
            measured: held.measured,
            noise: held.noise,
            key: held.coords[shrink],
            weight: held.weight,
            errors: [held.measured - held.coords[shrink], 0.0],
            stated: [1.0; 2],
        }
    }

    /// `None` without labels.
    pub fn labelled(
        held: &HeldOut,
        shrink: usize,
        by_labels: bool,
        stated: &Stated,
    ) -> Option<Self> {
        let (labels, error) = held.labels?;
        let coords = held.coords[shrink];
        let plain = Self::plain(held, shrink);
        Some(Self {
            key: if by_labels { labels } else { plain.key },
            errors: [plain.errors[0], held.measured - labels],
            stated: [stated.coords(coords.exp()), stated.labels(error)],
            ..plain
        })
    }

    fn missed(&self, mix: Mix) -> f32 {
        let share = mix.share(self.stated);
        share * self.errors[0] + (1.0 - share) * self.errors[1]
    }

    /// Of measured over predicted, in the mix's unit.
    pub fn scaled(&self, mix: Mix) -> f32 {
        self.missed(mix) / mix.unit(self.stated)
    }

    /// The measured time's own, in the same unit.
    pub fn scaled_noise(&self, mix: Mix) -> f32 {
        self.noise / mix.unit(self.stated)
    }

    /// Most errors matter, not the largest.
    fn loss(&self, mix: Mix) -> f32 {
        self.missed(mix).abs().min(MOST_MISSED).powf(0.75)
    }
}

/// The mix of cases of a range: the usual one, or labels alone. `overall` is that of all cases: only
/// if labels alone are best there are they used in a range, because their errors tell where
/// coordinates know better.
pub(crate) fn choose(cases: &[Case], usual: Mix, overall: Option<Mix>) -> Mix {
    let clearly = match overall {
        None => CLEARLY,
        Some(Mix::Labels) => HINTED,
        Some(_) => return usual,
    };
    let all = cases.iter().map(|case| case.weight).sum::<f32>().max(1e-9);
    let weighted = |of: &dyn Fn(&Case) -> f32| cases.iter().map(of).sum::<f32>() / all;
    let gain = |case: &Case| case.loss(usual) - case.loss(Mix::Labels);
    let mean = weighted(&|case| case.weight * gain(case));
    let squares = weighted(&|case| (case.weight * (gain(case) - mean)).powi(2));
    let error = (squares / all).sqrt();
    let lost = weighted(&|case| case.weight * case.loss(usual));
    let better = mean > (clearly * error).max(PART * lost);
    match better && median(cases, Mix::Labels) <= median(cases, usual) {
        true => Mix::Labels,
        false => usual,
    }
}

fn median(cases: &[Case], mix: Mix) -> f32 {
    let missed = cases
        .iter()
        .map(|case| (case.missed(mix).abs(), case.weight));
    weighted_quantile(missed.collect(), 0.5).unwrap_or(f32::INFINITY)
}
