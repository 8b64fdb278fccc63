//! The checks, by group.

pub(crate) mod allocator;
pub(crate) mod connection;
pub(crate) mod evaluate;
pub(crate) mod nodes;
pub(crate) mod questions;
pub(crate) mod time;
pub(crate) mod watch;

use crate::check::Check;

pub(crate) const GROUPS: [&[Check]; 7] = [
    connection::CHECKS,
    nodes::CHECKS,
    questions::CHECKS,
    time::CHECKS,
    watch::CHECKS,
    evaluate::CHECKS,
    allocator::CHECKS,
];
