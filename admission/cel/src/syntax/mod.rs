//! Parses source text into a syntax tree of bounded depth.

pub(crate) mod ast;
mod lexer;
mod literals;
mod parser;
mod token;

pub use parser::MAX_SOURCE_BYTES;
pub(crate) use parser::parse;
