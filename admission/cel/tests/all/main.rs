//! The tests of the public API in one program, which links faster than many.

mod bounds;
mod corpus;
mod kubernetes;
#[path = "../support/kubernetes_cases.rs"]
mod kubernetes_cases;
mod pfn;
