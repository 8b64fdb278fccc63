//! The checks by group.

mod allocator;
pub(crate) mod connection;
mod evaluate;
mod nodes;
mod questions;
mod time;
mod watch;

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
