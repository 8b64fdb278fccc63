//! The functions of Kubernetes 1.36, declared as in cel-go 0.26 and Kubernetes'
//! `apiserver/pkg/cel/library`, and the extensions of this crate. A function charges its
//! allocations and every byte or element it visits in advance.

/// Binds the arguments of a call to a pattern. If they do not fit, the function returns the error
/// that no overload accepts them.
macro_rules! bind {
    ($pattern:pat = $arguments:expr) => {
        let $pattern = $arguments else {
            return Err(crate::error::EvaluationError::no_overload());
        };
    };
}

mod authorizer;
mod convert;
pub(crate) mod declaration;
mod duration;
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
mod sets;
mod strings;
mod timestamp;
mod url;

use std::sync::LazyLock;

use declaration::{Library, declare};
pub(crate) use format::check_format;

static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let mut library = Library::new();
    for functions in [
        operators::FUNCTIONS,
        convert::FUNCTIONS,
        timestamp::FUNCTIONS,
        duration::FUNCTIONS,
        optional::FUNCTIONS,
        strings::FUNCTIONS,
        format::FUNCTIONS,
        lists::FUNCTIONS,
        sets::FUNCTIONS,
        regex::FUNCTIONS,
        url::FUNCTIONS,
        net::FUNCTIONS,
        quantity::FUNCTIONS,
        semver::FUNCTIONS,
        named_format::FUNCTIONS,
        authorizer::FUNCTIONS,
        extensions::FUNCTIONS,
    ] {
        declare(&mut library, functions);
    }
    library
});

pub(crate) fn library() -> &'static Library {
    &LIBRARY
}
