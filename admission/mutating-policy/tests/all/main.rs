//! All tests of the crate's API in one program, which links faster than many.

mod cases;
mod cel_hostile;
mod cel_pfn;
mod expressions;
mod hostile;
mod pfn;
