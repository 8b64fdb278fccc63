//! The functions of Kubernetes 1.36, declared as in cel-go 0.26 and Kubernetes'
//! `apiserver/pkg/cel/library`, and the extensions of this crate. A function charges its
//! allocations and every byte or element it visits in advance.

mod authorizer;
mod convert;
pub(crate) mod declaration;
mod extensions;
mod format;
mod lists;
mod named_format;
mod net;
mod operators;
mod optional;
mod quantity;
mod regex;
mod semver;
mod strings;
mod timestamp;
mod url;

use std::sync::LazyLock;

use declaration::{Library, declare};
pub(crate) use format::check_format;

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    declare(&[
        operators::MODULE,
        convert::MODULE,
        timestamp::MODULE,
        optional::MODULE,
        strings::MODULE,
        format::MODULE,
        lists::MODULE,
        regex::MODULE,
        url::MODULE,
        net::MODULE,
        quantity::MODULE,
        semver::MODULE,
        named_format::MODULE,
        authorizer::MODULE,
        extensions::MODULE,
    ])
});

pub(crate) fn library() -> &'static Library {
    &LIBRARY
}
