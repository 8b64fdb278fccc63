use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Makes a progress bar on standard error, which is hidden if that is not a terminal.
pub(super) fn bar(arrivals: u64) -> ProgressBar {
    let bar = ProgressBar::new(arrivals);
    let style =
        ProgressStyle::with_template("{wide_bar} {percent}% of {human_len} arrivals, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
