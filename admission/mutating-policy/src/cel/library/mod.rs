//! The functions of Kubernetes 1.36's environment, a file for each of its
//! libraries, and ours.
//!
//! A function charges for what it makes and for every byte or element it passes
//! over, before it does. Its declarations are those of cel-go 0.26 and of
//! Kubernetes' `apiserver/pkg/cel/library`.

mod authorize;
mod convert;
mod format;
mod lists;
mod named;
mod net;
mod operators;
mod optional;
mod ours;
mod pattern;
mod quantity;
mod sets;
mod span;
mod text;
mod time;
mod url;
mod version;

use std::sync::LazyLock;

use super::declaration::{Library, declare};

pub(super) use format::check_format;
pub use named::NamedFormat;
pub use net::Cidr;
pub(super) use pattern::Pattern;
pub use quantity::Quantity;
pub(super) use span::{duration, text as duration_text};
pub(super) use time::{text as timestamp_text, timestamp};
pub use url::Url;

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let mut library = Library::new();
    for rows in [
        operators::ROWS,
        convert::ROWS,
        time::ROWS,
        span::ROWS,
        optional::ROWS,
        text::ROWS,
        format::ROWS,
        lists::ROWS,
        sets::ROWS,
        pattern::ROWS,
        url::ROWS,
        net::ROWS,
        quantity::ROWS,
        version::ROWS,
        named::ROWS,
        authorize::ROWS,
        ours::ROWS,
    ] {
        declare(&mut library, rows);
    }
    library
});

/// All functions, by name.
pub(super) fn library() -> &'static Library {
    &LIBRARY
}
