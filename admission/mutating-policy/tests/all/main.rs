//! The tests of the public API in one program, which links faster than many.

mod cases;
mod isolation;
#[path = "../../../cel/tests/support/kubernetes_cases.rs"]
mod kubernetes_cases;
mod pfn;
mod request;
