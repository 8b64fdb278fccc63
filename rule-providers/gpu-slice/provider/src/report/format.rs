//! Formats amounts and requests for people.

use tautline_core::quantity;
use tautline_gpu_placement::{CARD_MILLI, RequestClass, SharingMode};

/// Formats a sharing mode: `milli`, `whole`, `dra`, or `shared/4` for cards of four units.
pub fn sharing_mode(lane: SharingMode) -> String {
    match lane {
        SharingMode::Milli | SharingMode::Agent => "milli".into(),
        SharingMode::Whole => "whole".into(),
        SharingMode::Shared { unit_milli } => format!("shared/{}", CARD_MILLI / unit_milli.max(1)),
        SharingMode::Claim => "dra".into(),
    }
}

/// Returns the name of a sharing mode: `milli`, `whole`, `shared` or `dra`.
pub fn sharing_mode_name(lane: SharingMode) -> &'static str {
    match lane {
        SharingMode::Milli | SharingMode::Agent => "milli",
        SharingMode::Whole => "whole",
        SharingMode::Shared { .. } => "shared",
        SharingMode::Claim => "dra",
    }
}

/// Returns the product, or `unknown` if the name is empty.
pub fn product(name: &str) -> &str {
    if name.is_empty() { "unknown" } else { name }
}

/// Formats thousandths of a card, also above 1000: `250m`.
pub fn milli(milli: i64) -> String {
    format!("{milli}m")
}

/// Formats a class of requests: `250m of a card, 2 CPU, A100|H100`.
pub fn class(class: &RequestClass) -> String {
    let mut text = match (class.milli, class.cards) {
        (0, _) | (_, 0) => "no GPU".to_owned(),
        (CARD_MILLI, 1) => "1 card".to_owned(),
        (CARD_MILLI, cards) => format!("{cards} cards"),
        (milli, 1) => format!("{milli}m of a card"),
        (milli, cards) => format!("{milli}m of {cards} cards each"),
    };
    if class.cpu_milli > 0 {
        text += &format!(", {} CPU", cores(class.cpu_milli));
    }
    if !class.models.is_empty() {
        text += &format!(", {}", class.models.join("|"));
    }
    text
}

/// Formats thousandths of a core: `2`, `1500m`.
pub fn cores(milli: i64) -> String {
    if milli % 1000 == 0 {
        (milli / 1000).to_string()
    } else {
        format!("{milli}m")
    }
}

/// Formats bytes in the largest binary unit that leaves no remainder.
pub fn bytes(bytes: i64) -> String {
    quantity::format_milli(bytes.saturating_mul(1000))
}

/// Formats memory in GiB with one decimal, or in MiB below 1 GiB: `14.2Gi`, `512Mi`.
pub fn memory(bytes: i64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{}Mi", bytes >> 20),
        _ => format!("{:.1}Gi", bytes as f64 / f64::from(1 << 30)),
    }
}

/// Formats a part as a percentage: `41%`; `<1%` for a small part above 0.
pub fn percent(part: f64, all: f64) -> String {
    if all <= 0.0 || part <= 0.0 {
        return "0%".into();
    }
    match part / all * 100.0 {
        p if p < 1.0 => "<1%".into(),
        p => format!("{p:.0}%"),
    }
}

/// Formats a number of things: `1 node`, `2 nodes`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
